"""The API as an OpenAPI 3.1 document, made from the route table and the types of the handlers.

Loaded on demand. A handler whose return type is a struct has the shape of its response in the document.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import msgspec

from switchboard_mcp import __version__
from switchboard_mcp.server.dashboard.api.routes import QUERY, ROUTES, ApiRequest, ApiRoute
from switchboard_mcp.server.dashboard.state import DashboardState

Json = dict[str, Any]
PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
ERROR: Json = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"message": {"type": "string"}, "hint": {"type": "string"}},
            "required": ["message"],
        }
    },
}
ERRORS = {
    "400": "The request is invalid.",
    "401": "There is no valid login, or its token has no dashboard access.",
    "403": "The token lacks the scope.",
    "404": "There is no such object, or the feature is off.",
    "409": "The action failed. The error says why, and what to do.",
}


async def openapi(state: DashboardState, request: ApiRequest) -> object:
    """Return the document."""
    return document()


def document() -> Json:
    """Return the OpenAPI document of all routes."""
    types = {
        kind for route in ROUTES for kind in (response_type(route), body_type(route)) if kind is not None
    }
    ordered = sorted(types, key=lambda kind: kind.__name__)
    schemas, components = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    references = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, Json] = {}
    for route in ROUTES:
        path = PARAMETER.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, references)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Switchboard dashboard API",
            "version": __version__,
            "description": "Scopes of tokens: `read` looks, `act` uses what is configured, `admin` changes it.",
        },
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def response_type(route: ApiRoute) -> type[msgspec.Struct] | None:
    """Return the struct that a handler returns; None if it returns something else."""
    module_name, _, name = route.handler.partition(":")
    module = import_module(f"switchboard_mcp.server.dashboard.api.{module_name}")
    written = getattr(module, name).__annotations__["return"]
    kind = getattr(module, written, None)
    return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None


def body_type(route: ApiRoute) -> type[msgspec.Struct] | None:
    """Return the struct of a request's body; None if it has none."""
    if not route.body:
        return None
    module = import_module(f"switchboard_mcp.server.dashboard.api.{route.handler.partition(':')[0]}")
    kind: type[msgspec.Struct] = getattr(module, route.body)
    return kind


def _operation(route: ApiRoute, references: dict[type[msgspec.Struct], Json]) -> Json:
    response, body = response_type(route), body_type(route)
    content = references[response] if response is not None else {"type": "object"}
    operation: Json = {
        "operationId": route.handler.replace(":", "_"),
        "summary": route.about,
        "x-scope": route.scope,
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in PARAMETER.findall(route.path)
            ),
            *(
                {"name": name, "in": "query", "description": QUERY[name], "schema": {"type": "string"}}
                for name in route.query
            ),
        ],
        "responses": {
            "200": {"description": "Done.", "content": {"application/json": {"schema": content}}},
            **{
                status: {
                    "description": text,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
                }
                for status, text in ERRORS.items()
            },
        },
    }
    if body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": references[body]}},
        }
    return operation
