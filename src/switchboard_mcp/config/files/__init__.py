"""The files of a workspace beside its configuration: approvals, lock, descriptions, secrets, and their JSON Schemas."""
