"""Mail and calendar as an MCP server, for the demo: 12 tools over a made-up mailbox held in memory."""

from __future__ import annotations

from stdio_server import Json, MistakeError, Tool, choice, flag, number, serve, several, text

MAILS: dict[str, Json] = {
    "m1": {
        "id": "m1",
        "folder": "inbox",
        "from": "ivo@example.com",
        "to": ["you@example.com"],
        "subject": "Dashboard review",
        "body": "Could we look at the dark theme on Thursday?",
        "date": "2030-01-14T09:12:00Z",
        "unread": True,
    },
    "m2": {
        "id": "m2",
        "folder": "inbox",
        "from": "billing@example.com",
        "to": ["you@example.com"],
        "subject": "Invoice 2030-017",
        "body": "Your invoice is attached.",
        "date": "2030-01-13T17:40:00Z",
        "unread": False,
    },
}
EVENTS: dict[str, Json] = {
    "e1": {
        "id": "e1",
        "title": "Planning",
        "start": "2030-01-15T10:00:00Z",
        "end": "2030-01-15T11:00:00Z",
        "attendees": ["mara@example.com"],
        "location": "Room 2",
    },
}

ADDRESS = {"type": "string", "format": "email", "description": "A mail address"}
TIME = "as an ISO 8601 time with its zone, for example 2030-01-15T10:00:00Z."
MAIL_ID = text(
    "Id of a message, as `list_messages` or `search_messages` return it. Not the Message-ID header."
)
EVENT_ID = text("Id of an event, as `list_events` returns it.")
FOLDER = text(
    "Name of a folder; `list_folders` shows them. System folders are inbox, sent, drafts, archive and trash."
)
CALENDAR = text("Name of the calendar, where there are several.", default="primary")
ATTACHMENTS = several(
    "Files to attach, at most 25 MB together.",
    {
        "type": "object",
        "properties": {
            "name": text("File name with its ending."),
            "mime_type": text("Media type, for example application/pdf."),
            "content": text("The file in base64.", contentEncoding="base64"),
        },
        "required": ["name", "content"],
    },
)
RECURRENCE = {
    "type": "object",
    "description": "Repeat the event. Leave it out for an event that happens once.",
    "properties": {
        "frequency": choice("How often.", "daily", "weekly", "monthly", "yearly"),
        "interval": number("Every how many of them.", minimum=1, default=1),
        "until": text("Last day it may happen, as YYYY-MM-DD.", format="date"),
        "weekdays": several("Only on these days.", choice("A day", "mo", "tu", "we", "th", "fr", "sa", "su")),
    },
    "required": ["frequency"],
}


def find(store: dict[str, Json], key: str) -> Json:
    if key not in store:
        raise MistakeError(f"There is nothing with the id {key}.")
    return store[key]


def head(mail: Json) -> Json:
    return {key: mail[key] for key in ("id", "from", "subject", "date", "unread")}


def list_messages(args: Json) -> object:
    folder, unread = args.get("folder", "inbox"), args.get("unread_only", False)
    found = [head(m) for m in MAILS.values() if m["folder"] == folder and (m["unread"] or not unread)]
    return found[: args.get("limit", 20)]


def search_messages(args: Json) -> object:
    words = args["query"].lower().split()
    return [head(m) for m in MAILS.values() if all(w in f"{m['subject']} {m['body']}".lower() for w in words)]


def write(folder: str, args: Json) -> object:
    mail = {
        "id": f"m{len(MAILS) + 1}",
        "folder": folder,
        "from": "you@example.com",
        "to": args["to"],
        "subject": args["subject"],
        "body": args["body"],
        "date": "2030-01-14T12:00:00Z",
        "unread": False,
    }
    MAILS[mail["id"]] = mail
    return {"id": mail["id"], "folder": folder}


def reply(args: Json) -> object:
    mail = find(MAILS, args["message_id"])
    return write("sent", {"to": [mail["from"]], "subject": f"Re: {mail['subject']}", "body": args["body"]})


def move_message(args: Json) -> object:
    mail = find(MAILS, args["message_id"])
    mail["folder"] = args["folder"]
    return {"id": mail["id"], "folder": mail["folder"]}


def mark_message(args: Json) -> object:
    mail = find(MAILS, args["message_id"])
    mail["unread"] = args["unread"]
    return head(mail)


def list_events(args: Json) -> object:
    return [e for e in EVENTS.values() if args["from"] <= e["start"] and e["end"] <= args["to"]]


def create_event(args: Json) -> object:
    event = {"attendees": [], "location": "", **args, "id": f"e{len(EVENTS) + 1}"}
    EVENTS[event["id"]] = event
    return event


def update_event(args: Json) -> object:
    event = find(EVENTS, args["event_id"])
    event.update({key: value for key, value in args.items() if key in event})
    return event


def find_free_time(args: Json) -> object:
    busy = sorted(
        (e["start"], e["end"]) for e in EVENTS.values() if e["start"] < args["to"] and e["end"] > args["from"]
    )
    free, start = [], args["from"]
    for begins, ends in busy:
        if begins > start:
            free.append({"start": start, "end": begins})
        start = max(start, ends)
    return [*free, {"start": start, "end": args["to"]}] if start < args["to"] else free


WRITE = {
    "to": several("Who gets it.", ADDRESS, minItems=1),
    "cc": several("Who gets a copy.", ADDRESS),
    "bcc": several("Who gets a copy that the others do not see.", ADDRESS),
    "subject": text("Subject line.", maxLength=300),
    "body": text("Text of the message. Markdown is turned into HTML; a plain text part is added."),
    "attachments": ATTACHMENTS,
    "importance": choice("Mark for the reader's mail program.", "low", "normal", "high", default="normal"),
}
EVENT = {
    "title": text("Title, as attendees see it."),
    "start": text(f"When it begins, {TIME}", format="date-time"),
    "end": text(f"When it ends, {TIME}", format="date-time"),
    "attendees": several("Who is invited. Invitations go out at once.", ADDRESS),
    "location": text("Where it is: a room, an address, or a link to a video call."),
    "description": text("What it is about, in Markdown."),
    "recurrence": RECURRENCE,
    "reminder_minutes": number("Remind this many minutes before.", minimum=0, default=10),
    "calendar": CALENDAR,
}

TOOLS = [
    Tool(
        "list_messages",
        "List messages of a folder, newest first: id, sender, subject, date and whether it is unread. Use "
        "`read_message` for the text of one.",
        {
            "folder": {**FOLDER, "default": "inbox"},
            "unread_only": flag("Only messages that have not been read.", False),
            "limit": number("Most messages to return.", minimum=1, maximum=100, default=20),
        },
        (),
        list_messages,
    ),
    Tool(
        "search_messages",
        "Search all folders but trash. All words must occur in subject or text. Combine with the "
        "filters to narrow it down.",
        {
            "query": text("Words to look for."),
            "from": text("Only messages from this address or name."),
            "after": text("Only messages after this day, as YYYY-MM-DD.", format="date"),
            "before": text("Only messages before this day, as YYYY-MM-DD.", format="date"),
            "has_attachment": {
                "type": "boolean",
                "description": "Only messages with, or without, attachments.",
            },
        },
        ("query",),
        search_messages,
    ),
    Tool(
        "read_message",
        "Get one message with its text and the list of its attachments. Does not mark it as read.",
        {"message_id": MAIL_ID},
        ("message_id",),
        lambda args: find(MAILS, args["message_id"]),
    ),
    Tool(
        "send_message",
        "Send a message. It cannot be called back: use `create_draft` where a person shall look at it first.",
        WRITE,
        ("to", "subject", "body"),
        lambda args: write("sent", args),
        writes=True,
    ),
    Tool(
        "create_draft",
        "Write a message into the drafts folder without sending it.",
        WRITE,
        ("to", "subject", "body"),
        lambda args: write("drafts", args),
        writes=True,
    ),
    Tool(
        "reply_to_message",
        "Answer a message, to its sender or to everybody who got it. The earlier text is quoted below.",
        {
            "message_id": MAIL_ID,
            "body": WRITE["body"],
            "reply_all": flag("Answer everybody who got the message.", False),
            "attachments": ATTACHMENTS,
        },
        ("message_id", "body"),
        reply,
        writes=True,
    ),
    Tool(
        "move_message",
        "Move a message to another folder, for example to archive or trash.",
        {"message_id": MAIL_ID, "folder": FOLDER},
        ("message_id", "folder"),
        move_message,
        writes=True,
    ),
    Tool(
        "mark_message",
        "Mark a message as read or unread.",
        {
            "message_id": MAIL_ID,
            "unread": {"type": "boolean", "description": "Whether it shall count as unread."},
        },
        ("message_id", "unread"),
        mark_message,
        writes=True,
    ),
    Tool(
        "list_events",
        "List the events between two times, in their order. Repeated events appear once for each time they happen.",
        {
            "from": text(f"Begin of the span, {TIME}", format="date-time"),
            "to": text(f"End of the span, {TIME}", format="date-time"),
            "calendar": CALENDAR,
        },
        ("from", "to"),
        list_events,
    ),
    Tool(
        "create_event",
        "Put an event into the calendar and invite people. Use `find_free_time` first to see when everybody can come.",
        EVENT,
        ("title", "start", "end"),
        create_event,
        writes=True,
    ),
    Tool(
        "update_event",
        "Change an event. Only the fields that are given change; attendees are told of the change.",
        {"event_id": EVENT_ID, **EVENT},
        ("event_id",),
        update_event,
        writes=True,
    ),
    Tool(
        "find_free_time",
        "Find spans in which nobody of the given people is busy.",
        {
            "attendees": several("Whose calendars to look at, beside your own.", ADDRESS),
            "from": text(f"Look from then on, {TIME}", format="date-time"),
            "to": text(f"Look until then, {TIME}", format="date-time"),
            "minutes": number("How long the span must be at least.", minimum=5, default=30),
        },
        ("from", "to"),
        find_free_time,
    ),
]

if __name__ == "__main__":
    serve("office", TOOLS, "Times are in UTC unless they carry another zone.")
