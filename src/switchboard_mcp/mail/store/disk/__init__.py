"""The store on disk: how groups of changes become durable, and how settled messages are packed."""
