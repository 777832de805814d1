"""The dashboard's JSON API, one module per subject. `routes` lists every endpoint."""
