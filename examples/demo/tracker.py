"""An issue tracker as an MCP server, for the demo: 14 tools over a few issues held in memory."""

from __future__ import annotations

from typing import Any

from stdio_server import Json, MistakeError, Tool, choice, number, serve, several, text

STATES = ("open", "in_progress", "in_review", "closed")
PRIORITIES = ("low", "normal", "high", "urgent")

ISSUES: dict[int, Json] = {
    101: {
        "number": 101,
        "title": "Checkout fails with an empty cart",
        "body": "Opening /checkout without items answers 500.",
        "state": "open",
        "priority": "high",
        "labels": ["bug"],
        "assignees": ["mara"],
        "milestone": "2.4",
        "comments": [{"id": 1, "author": "mara", "body": "Happens since 2.3."}],
    },
    102: {
        "number": 102,
        "title": "Dark theme for the dashboard",
        "body": "Several customers asked for it.",
        "state": "in_progress",
        "priority": "normal",
        "labels": ["feature"],
        "assignees": ["ivo"],
        "milestone": "2.5",
        "comments": [],
    },
    103: {
        "number": 103,
        "title": "Document the export format",
        "body": "The columns of the CSV export are described nowhere.",
        "state": "open",
        "priority": "low",
        "labels": ["docs"],
        "assignees": [],
        "milestone": None,
        "comments": [],
    },
}
LABELS: dict[str, Json] = {
    "bug": {"name": "bug", "color": "#d73a4a", "description": "Something does not work"},
    "feature": {"name": "feature", "color": "#0e8a16", "description": "Something new"},
    "docs": {"name": "docs", "color": "#0075ca", "description": "Documentation"},
}
MILESTONES: dict[str, Json] = {
    "2.4": {"title": "2.4", "due_on": "2030-03-01", "description": "Stability"},
    "2.5": {"title": "2.5", "due_on": "2030-06-01", "description": "Looks"},
}

PROJECT = text(
    "Key of the project, as shown in the address of its board, for example `SHOP`. Defaults to the project of the "
    "access token when it can see only one.",
    pattern="^[A-Z][A-Z0-9]{1,9}$",
)
ISSUE = number(
    "Number of the issue within its project, without the leading `#`. Not the global id that some exports contain.",
    minimum=1,
)
BODY = text(
    "Text in Markdown. Mentions such as `@mara` notify people, `#101` links another issue, and task lists are counted "
    "in the progress of the issue.",
    maxLength=65536,
)
PEOPLE = several("User names without `@`. People who may not see the project are refused.", text("User name"))
PAGE = number("Page to return, counted from 1.", minimum=1, default=1)
PAGE_SIZE = number(
    "Entries per page. Larger pages are slower; more than 100 is refused.", minimum=1, maximum=100
)


def issue_of(args: Json) -> Json:
    if args["issue_number"] not in ISSUES:
        raise MistakeError(f"There is no issue #{args['issue_number']}.")
    return ISSUES[args["issue_number"]]


def brief(issue: Json) -> Json:
    return {key: issue[key] for key in ("number", "title", "state", "priority", "labels")}


def page(entries: list[Any], args: Json) -> list[Any]:
    size = args.get("per_page", 30)
    start = (args.get("page", 1) - 1) * size
    return entries[start : start + size]


def list_issues(args: Json) -> object:
    wanted = set(args.get("labels", ()))
    state, assignee = args.get("state", "open"), args.get("assignee")
    found = [
        brief(issue)
        for issue in ISSUES.values()
        if (state == "all" or issue["state"] == state)
        and wanted <= set(issue["labels"])
        and (assignee is None or assignee in issue["assignees"])
    ]
    return page(found, args)


def search_issues(args: Json) -> object:
    words = args["query"].lower().split()
    return page(
        [brief(i) for i in ISSUES.values() if all(w in f"{i['title']} {i['body']}".lower() for w in words)],
        args,
    )


def create_issue(args: Json) -> object:
    if unknown := [name for name in args.get("labels", ()) if name not in LABELS]:
        raise MistakeError(f"There is no label {', '.join(unknown)}; create_label makes one.")
    issue = {
        "number": max(ISSUES) + 1,
        "title": args["title"],
        "body": args.get("body", ""),
        "state": "open",
        "priority": args.get("priority", "normal"),
        "labels": list(args.get("labels", ())),
        "assignees": list(args.get("assignees", ())),
        "milestone": args.get("milestone"),
        "comments": [],
    }
    ISSUES[issue["number"]] = issue
    return brief(issue)


def update_issue(args: Json) -> object:
    issue = issue_of(args)
    issue.update({key: value for key, value in args.items() if key in issue})
    return brief(issue)


def add_comment(args: Json) -> object:
    comments = issue_of(args)["comments"]
    comments.append({"id": len(comments) + 1, "author": "you", "body": args["body"]})
    return comments[-1]


def assign_issue(args: Json) -> object:
    issue = issue_of(args)
    kept = [] if args.get("replace") else issue["assignees"]
    issue["assignees"] = list(dict.fromkeys([*kept, *args["assignees"]]))
    return {"number": issue["number"], "assignees": issue["assignees"]}


def close_issue(args: Json) -> object:
    issue = issue_of(args)
    issue["state"] = "closed"
    if "comment" in args:
        add_comment({"issue_number": issue["number"], "body": args["comment"]})
    return {**brief(issue), "reason": args.get("reason", "done")}


def link_issues(args: Json) -> object:
    source, target = issue_of(args), issue_of({"issue_number": args["target_number"]})
    return f"#{source['number']} {args['relation']} #{target['number']}"


def create_label(args: Json) -> object:
    LABELS[args["name"]] = {"color": "#cccccc", "description": "", **args}
    return LABELS[args["name"]]


def create_milestone(args: Json) -> object:
    MILESTONES[args["title"]] = {"due_on": None, "description": "", **args}
    return MILESTONES[args["title"]]


TOOLS = [
    Tool(
        "list_issues",
        "List the issues of a project, newest first. Filters are combined with AND; leave them out to get all open "
        "issues. Returns number, title, state, priority and labels. Use `get_issue` for text and comments of one.",
        {
            "project": PROJECT,
            "state": choice("Only issues in this state.", *STATES, "all", default="open"),
            "labels": several("Only issues that carry all of these labels.", text("Name of a label")),
            "assignee": text("Only issues assigned to this user name; `none` for issues that nobody has."),
            "milestone": text("Only issues of the milestone with this title."),
            "sort": choice(
                "Order of the list.", "created", "updated", "priority", "comments", default="created"
            ),
            "direction": choice("Direction of the order.", "asc", "desc", default="desc"),
            "page": PAGE,
            "per_page": PAGE_SIZE,
        },
        (),
        list_issues,
    ),
    Tool(
        "get_issue",
        "Get one issue with its text, people, labels, milestone and all comments.",
        {"project": PROJECT, "issue_number": ISSUE},
        ("issue_number",),
        issue_of,
    ),
    Tool(
        "search_issues",
        "Search titles and texts of issues in all projects you can see. All words must occur. Prefer `list_issues` "
        "where you only need to filter by state, label, person or milestone: it is exact, and faster.",
        {
            "query": text(
                "Words to look for, for example `checkout empty cart`. Quotes and operators are not understood."
            ),
            "include_closed": {
                "type": "boolean",
                "description": "Also look at closed issues.",
                "default": False,
            },
            "page": PAGE,
            "per_page": PAGE_SIZE,
        },
        ("query",),
        search_issues,
    ),
    Tool(
        "create_issue",
        "Create an issue. Search first: duplicates are merged by hand. Labels and milestones must exist.",
        {
            "project": PROJECT,
            "title": text(
                "One line that says what is wrong or wanted, without a full stop.", minLength=3, maxLength=200
            ),
            "body": BODY,
            "priority": choice(
                "How urgent it is. `urgent` pages the person on call.", *PRIORITIES, default="normal"
            ),
            "labels": several("Labels to put on it; all must exist.", text("Name of a label"), maxItems=20),
            "assignees": PEOPLE,
            "milestone": text("Title of the milestone it belongs to."),
            "estimate": {
                "type": "object",
                "description": "How much work it is thought to be.",
                "properties": {
                    "value": {"type": "number", "minimum": 0, "description": "Amount in the given unit."},
                    "unit": choice("Unit of the amount.", "hours", "days", "points"),
                },
                "required": ["value", "unit"],
            },
        },
        ("title",),
        create_issue,
        writes=True,
    ),
    Tool(
        "update_issue",
        "Change fields of an issue. Only the fields that are given change; lists replace what was there.",
        {
            "project": PROJECT,
            "issue_number": ISSUE,
            "title": text("New title.", minLength=3, maxLength=200),
            "body": BODY,
            "state": choice("New state. Use `close_issue` to close with a reason.", *STATES),
            "priority": choice("New priority.", *PRIORITIES),
            "labels": several("All labels it shall carry from now on.", text("Name of a label")),
            "milestone": {
                "type": ["string", "null"],
                "description": "Title of a milestone, or null for none.",
            },
        },
        ("issue_number",),
        update_issue,
        writes=True,
    ),
    Tool(
        "add_comment",
        "Write a comment under an issue. Everybody who follows the issue is notified.",
        {"project": PROJECT, "issue_number": ISSUE, "body": BODY},
        ("issue_number", "body"),
        add_comment,
        writes=True,
    ),
    Tool(
        "list_comments",
        "List the comments of an issue, oldest first.",
        {"project": PROJECT, "issue_number": ISSUE, "page": PAGE, "per_page": PAGE_SIZE},
        ("issue_number",),
        lambda args: page(issue_of(args)["comments"], args),
    ),
    Tool(
        "assign_issue",
        "Assign people to an issue, beside those who have it or instead of them.",
        {
            "project": PROJECT,
            "issue_number": ISSUE,
            "assignees": PEOPLE,
            "replace": {"type": "boolean", "description": "Take it from everybody else.", "default": False},
        },
        ("issue_number", "assignees"),
        assign_issue,
        writes=True,
    ),
    Tool(
        "close_issue",
        "Close an issue, with the reason and if needed a last comment.",
        {
            "project": PROJECT,
            "issue_number": ISSUE,
            "reason": choice("Why it is closed.", "done", "duplicate", "not_planned", default="done"),
            "comment": BODY,
        },
        ("issue_number",),
        close_issue,
        writes=True,
    ),
    Tool(
        "link_issues",
        "Tell how two issues belong together. The opposite relation appears on the other issue by itself.",
        {
            "project": PROJECT,
            "issue_number": ISSUE,
            "relation": choice(
                "How the first relates to the second.", "blocks", "relates_to", "duplicates", "part_of"
            ),
            "target_number": number("Number of the other issue.", minimum=1),
        },
        ("issue_number", "relation", "target_number"),
        link_issues,
        writes=True,
    ),
    Tool(
        "list_labels",
        "List the labels of a project with colour and meaning.",
        {"project": PROJECT},
        (),
        lambda _args: list(LABELS.values()),
    ),
    Tool(
        "create_label",
        "Create a label, or change the one of that name.",
        {
            "project": PROJECT,
            "name": text("Name of the label, in small letters.", maxLength=50),
            "color": text("Colour as `#rrggbb`.", pattern="^#[0-9a-f]{6}$"),
            "description": text("When to use it, in a sentence.", maxLength=100),
        },
        ("name",),
        create_label,
        writes=True,
    ),
    Tool(
        "list_milestones",
        "List the milestones of a project with their due dates.",
        {
            "project": PROJECT,
            "state": choice("Only milestones in this state.", "open", "closed", "all", default="open"),
        },
        (),
        lambda _args: list(MILESTONES.values()),
    ),
    Tool(
        "create_milestone",
        "Create a milestone that issues can be planned for.",
        {
            "project": PROJECT,
            "title": text("Title, for example a version number."),
            "due_on": text("Last day, as YYYY-MM-DD.", format="date"),
            "description": text("What it is about."),
        },
        ("title",),
        create_milestone,
        writes=True,
    ),
]

if __name__ == "__main__":
    serve("tracker", TOOLS, "Issue numbers are unique within a project. Search before you create.")
