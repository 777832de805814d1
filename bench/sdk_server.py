"""The official SDK's own server over HTTP, with the echo in it: `python sdk_server.py PORT`.

On the SDK's lower layer, which is its fastest; there is no child behind it, so it does less than a proxy.
"""

from __future__ import annotations

import sys
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

SCHEMA = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
Context = ServerRequestContext[Any, Any]


async def list_tools(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(
        tools=[types.Tool(name="echo", description="Answers with what it is told.", input_schema=SCHEMA)]
    )


async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=(params.arguments or {})["message"])])


if __name__ == "__main__":
    app = Server("echo", on_list_tools=list_tools, on_call_tool=call_tool).streamable_http_app()
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
