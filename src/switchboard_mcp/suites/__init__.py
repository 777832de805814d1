"""How tools are presented to a model: introspection, schemas, signatures, search and token counts. Pure."""
