"""The pipeline a suite call passes when it is configured: rate limits, cache, middleware, result paging, audit."""
