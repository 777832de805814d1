"""What a pipeline keeps of results: the cache and the pages. Loaded if either is configured."""

from __future__ import annotations

from switchboard_mcp.gateway.pipeline.cache import ResultCache as ResultCache
from switchboard_mcp.gateway.pipeline.result_paging import PageStore as PageStore
