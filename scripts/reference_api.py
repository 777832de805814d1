"""The pages about the dashboard's API: a table of its endpoints, and the OpenAPI document."""

from __future__ import annotations

import json

from switchboard_mcp.server.dashboard.api import openapi
from switchboard_mcp.server.dashboard.api.routes import QUERY, ROUTES
from switchboard_mcp.server.dashboard.events import EVENTS

PAGE = """# The dashboard's API

{note}

Programs can do everything the [dashboard](../dashboard.md) does, with the header `Authorization: Bearer TOKEN`.
The token needs the scope of the endpoint, or a higher one: `read`, then `act`, then `admin`.
They are described under [access](../dashboard.md#access).
Bodies and responses are JSON. Times are milliseconds since the epoch.
An error is `{{"error": {{"message", "hint", …}}}}` with a status of 400 or above.
The same as an OpenAPI 3.1 document, with the members of requests and responses:
[openapi.json](openapi.json), also served at `/api/openapi.json`.

## Log in

| method | path | description |
| --- | --- | --- |
| `POST` | `/api/login` | A cookie and its `pageKey`, for a `token` or the `code` of the link. |
| `POST` | `/api/logout` | Forget the cookie. |
| `POST` | `/api/link` | The `code` of a new link, with the rights of your token. A cookie gets none. |

Requests with the cookie need its `pageKey` in the header `X-Page-Key`.

## Endpoints

| method | path | scope | query | description |
| --- | --- | --- | --- | --- |
{routes}

## Queries

| parameter | meaning |
| --- | --- |
{queries}

## Responses

{shapes}
## Events

`GET /events` is a stream of server-sent events. State is sampled once per second and shared by all clients.

| event | data |
| --- | --- |
{events}
"""


def api(note: str) -> str:
    """Return the page."""
    routes = [
        f"| `{route.method}` | `{route.path}` | {route.scope} | "
        f"{', '.join(f'`{name}`' for name in route.query)} | {route.about} |"
        for route in ROUTES
    ]
    queries = [f"| `{name}` | {text} |" for name, text in QUERY.items()]
    events = [f"| `{name}` | {text} |" for name, text in EVENTS.items()]
    return PAGE.format(
        note=note,
        routes="\n".join(routes),
        queries="\n".join(queries),
        shapes="\n".join(_shapes()),
        events="\n".join(events),
    )


def document() -> str:
    """Return the OpenAPI document."""
    return json.dumps(openapi.document(), indent=2, ensure_ascii=False) + "\n"


def _shapes() -> list[str]:
    """Return a section per struct: its members with their types."""
    schemas = openapi.document()["components"]["schemas"]
    lines: list[str] = []
    for name, schema in sorted(schemas.items()):
        if name == "Error" or "properties" not in schema:
            continue
        about = " ".join(schema.get("description", "").split("\n\n")[0].split())
        members = [f"| `{member}` | {_kind(node)} |" for member, node in schema["properties"].items()]
        lines += [f"### {name}", "", about, "", "| member | type |", "| --- | --- |", *members, ""]
    return lines


def _kind(node: dict[str, object]) -> str:
    if "$ref" in node:
        return str(node["$ref"]).rpartition("/")[2]
    if "anyOf" in node:
        return " or ".join(_kind(each) for each in node["anyOf"])  # type: ignore[attr-defined]
    if "enum" in node:
        return " or ".join(f"`{value}`" for value in node["enum"])  # type: ignore[attr-defined]
    kind = str(node.get("type", "any"))
    items = node.get("items")
    if kind == "array":
        return f"list of {_kind(items)}" if isinstance(items, dict) else "list"
    values = node.get("additionalProperties")
    return f"object of {_kind(values)}" if kind == "object" and isinstance(values, dict) else kind
