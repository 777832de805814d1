"""Scenario: questions that a rule "ask on writes" raises on recorded work, and the time that a decision takes.

The work is BFCL's multi-turn tasks with the calls that solve them. Each API is a child; every call passes a whole
gateway, in one session per task, and the person allows everything. The annotations are those that a careful author
would declare (`READS`). Whether they are right is checked against the source of the simulators: a function that
changes its object, or calls one that does, is a write. The time of a decision is that of the pure function with 50
rules, for calls that differ in what the rules look at.
"""

from __future__ import annotations

import ast
import asyncio
import json
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.find_sets import BFCL
from bench.report import Goal, Options, Report, Table, cell
from switchboard_mcp.app import CommandOptions, load, running
from switchboard_mcp.cli.local_client import connected
from switchboard_mcp.config.gate import GateSettings
from switchboard_mcp.gateway.gate.arguments import readings
from switchboard_mcp.observability.log import Log
from switchboard_mcp.policy.gate.conditions import Surroundings
from switchboard_mcp.policy.gate.rules import GateCall, GateRules, ToolHints
from switchboard_mcp.policy.gate.spellings import Resolve
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.system.real_paths import real_path

CHILD = Path(__file__).resolve().parent / "tools_child.py"
TASKS = ("base", "long_context", "miss_func", "miss_param")
APIS = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
# What a careful author would declare read-only. All others are writes.
READS = frozenset(
    """
    cat diff du find grep ls pwd sort tail wc
    absolute_value add divide imperial_si_conversion logarithm max_value mean min_value multiply percentage power
    round_number si_unit_conversion square_root standard_deviation subtract sum_values
    get_message_stats get_user_id list_users message_get_login_status search_messages view_messages_sent
    get_tweet get_tweet_comments get_user_stats get_user_tweets list_all_following posting_get_login_status
    search_tweets
    get_ticket get_user_tickets ticket_get_login_status
    filter_stocks_by_price get_account_info get_available_stocks get_current_time get_order_details get_order_history
    get_stock_info get_symbol_by_name get_transaction_history get_watchlist notify_price_change
    trading_get_login_status
    compute_exchange_rate get_all_credit_cards get_booking_history get_budget_fiscal_year get_credit_card_balance
    get_flight_cost get_nearest_airport_by_city list_all_airports retrieve_invoice travel_get_login_status
    verify_traveler_information contact_customer_support
    check_tire_pressure displayCarStatus display_log estimate_distance estimate_drive_feasibility_by_mileage
    find_nearest_tire_shop gallon_to_liter get_current_speed get_outside_temperature_from_google
    get_outside_temperature_from_weather_com get_zipcode_based_on_city liter_to_gallon
    """.split()
)
MUTATORS = frozenset(
    {"append", "extend", "insert", "pop", "popitem", "remove", "clear", "update", "setdefault", "add"}
)
# What a simulator keeps to answer faster is no change that anybody sees.
CACHES = frozenset({"_flight_cost_lookup"})
RULES = 50
BATCH = 200
# The folder of the server, the workspace, the home folder, and what looks links up.
Around = tuple[str, str, str, Resolve]


@dataclass(frozen=True)
class Task:
    """One task: its calls in order, each with its API, function and arguments."""

    calls: list[tuple[str, str, dict[str, object]]]


@dataclass
class Questions:
    """Questions of one run, and the calls that were made."""

    calls: int = 0
    writes: int = 0
    questions: int = 0
    on_reads: int = 0
    unasked_writes: int = 0


class Person:
    """Allows everything, and counts."""

    is_available = True

    def __init__(self) -> None:
        self.questions = 0

    def ask(self, question: str, on_answer: Callable[[bool | None], None]) -> None:
        self.questions += 1
        on_answer(True)


def run(options: Options) -> Report:
    report = Report()
    if BFCL.exists():
        questions(options, report)
    else:
        report.notes.append("BFCL is not here: questions are not counted (bench/README.md).")
    speed(options, report)
    return report


def questions(options: Options, report: Report) -> None:
    with zipfile.ZipFile(BFCL) as package:
        tools = {api: functions(package, file) for api, file in APIS.items()}
        tasks = list(read_tasks(package, tools))
        wrong = disagreements(package, tools)
    tasks = tasks[: options.pick(len(tasks), 60)]
    rows = []
    runs: dict[str, Questions] = {}
    for often in ("always", "session"):
        found = runs[often] = asyncio.run(replay(tasks, tools, often))
        rows.append(
            [f'"ask": "{often}"']
            + [f"{count:,}" for count in (found.calls, found.writes, found.questions, found.on_reads)]
            + [f"{found.unasked_writes:,}", cell(found.questions / len(tasks), 1)]
        )
    columns = [
        "rule on writes",
        "calls",
        "writes",
        "questions",
        "on reads",
        "writes not asked about",
        "per task",
    ]
    report.tables.append(Table(f"Questions on {len(tasks)} BFCL multi-turn tasks", columns, rows))
    always, session = runs["always"], runs["session"]
    fewer = 100 * (1 - session.questions / always.questions)
    report.goals += [
        Goal("questions on reads", float(always.on_reads + session.on_reads), "at most", 0, ""),
        Goal("writes without a question, asking always", float(always.unasked_writes), "at most", 0, ""),
        Goal("annotations that contradict the source of the simulators", float(len(wrong)), "at most", 0, ""),
    ]
    report.figures["gate"] = {"always": always.questions, "session": session.questions, "fewer %": fewer}
    report.notes.append(f"Once per session asks {fewer:.0f} % less often than always.")
    report.notes += [f"Contradicted by its source: {name}" for name in wrong]


def functions(package: zipfile.ZipFile, file: str) -> list[dict[str, object]]:
    """Return the tools of one API, as its server would list them."""
    listed = []
    for line in package.read(f"bfcl_eval/data/multi_turn_func_doc/{file}.json").decode().splitlines():
        function = json.loads(line)
        listed.append(
            {
                "name": function["name"],
                "description": function["description"],
                "inputSchema": {**function["parameters"], "type": "object"},
                "annotations": {"readOnlyHint": function["name"] in READS},
            }
        )
    return listed


def read_tasks(package: zipfile.ZipFile, tools: dict[str, list[dict[str, object]]]) -> Iterator[Task]:
    owner = {str(tool["name"]): api for api, listed in tools.items() for tool in listed}
    parameters = {
        str(tool["name"]): list(tool["inputSchema"].get("properties", {}))  # type: ignore[attr-defined]
        for listed in tools.values()
        for tool in listed
    }
    for name in TASKS:
        for line in (
            package.read(f"bfcl_eval/data/possible_answer/BFCL_v4_multi_turn_{name}.json")
            .decode()
            .splitlines()
        ):
            calls = []
            for turn in json.loads(line)["ground_truth"]:
                for written in turn:
                    call = ast.parse(written.strip(), mode="eval").body
                    assert isinstance(call, ast.Call)
                    assert isinstance(call.func, ast.Name)
                    function = call.func.id
                    values = dict(zip(parameters[function], map(ast.literal_eval, call.args), strict=False))
                    values |= {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
                    calls.append((owner[function], function, values))
            yield Task(calls)


async def replay(tasks: list[Task], tools: dict[str, list[dict[str, object]]], often: str) -> Questions:
    """Make the calls of all tasks, each task in a session of its own."""
    found = Questions()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        servers = {}
        for api, listed in tools.items():
            file = folder / f"{api}.json"
            file.write_text(json.dumps(listed))
            servers[api.lower()] = {"command": sys.executable, "args": [str(CHILD), str(file)]}
        gate = [{"ask": often, "hints": {"readOnly": False}}]
        config = {"mcpServers": servers, "gate": gate}
        (folder / "switchboard.config.json").write_text(json.dumps(config))
        redactor = Redactor()
        workspace = load(CommandOptions(workspace=name))
        async with running(workspace, Log(level="error", redactor=redactor), redactor) as switchboard:
            for task in tasks:
                person = Person()
                answered: set[str] = set()
                async with connected(switchboard.gateway, None, person) as host:
                    for api, function, values in task.calls:
                        before = person.questions
                        arguments = {"action": "call", "subtool": function, "args": values}
                        result = await host.call(f"{api.lower()}_suite", arguments)
                        assert result.content[0]["text"] == function, result
                        raised = person.questions - before
                        is_write = function not in READS
                        found.calls += 1
                        found.writes += is_write
                        found.questions += raised
                        found.on_reads += raised if not is_write else 0
                        needed = is_write and (often == "always" or function not in answered)
                        found.unasked_writes += needed and not raised
                        answered.add(function)
    return found


def disagreements(package: zipfile.ZipFile, tools: dict[str, list[dict[str, object]]]) -> list[str]:
    """Return the functions whose source changes its object although they are declared read-only."""
    wrong = []
    for api, file in APIS.items():
        source = package.read(f"bfcl_eval/eval_checker/multi_turn_eval/func_source_code/{file}.py").decode()
        writers = writing_methods(ast.parse(source))
        wrong += [f"{api}.{tool['name']}" for tool in tools[api] if tool["name"] in READS & writers]
    return wrong


def writing_methods(module: ast.Module) -> frozenset[str]:
    """Return the methods of a module that change `self` or an object reached from it, or call one that does."""
    methods = {
        node.name: node
        for each in module.body
        if isinstance(each, ast.ClassDef)
        for node in each.body
        if isinstance(node, ast.FunctionDef)
    }
    writers: set[str] = set()
    while True:
        found = {name for name, method in methods.items() if name not in writers and writes(method, writers)}
        if not found:
            return frozenset(writers)
        writers |= found


def writes(method: ast.FunctionDef, writers: set[str]) -> bool:
    for node in ast.walk(method):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = list(node.targets)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in writers and from_self(node.func.value):
                return True
            if node.func.attr in MUTATORS:
                targets = [node.func.value]
                if isinstance(node.func.value, ast.Name):
                    continue  # a variable of the function
        if any(isinstance(target, ast.Attribute | ast.Subscript) and from_self(target) for target in targets):
            return True
    return False


def from_self(node: ast.expr) -> bool:
    """Return True if an expression begins with `self` and is not a cache."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        if isinstance(node, ast.Attribute) and node.attr in CACHES:
            return False
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id == "self"


def speed(options: Options, report: Report) -> None:
    """Measure decisions with 50 rules over ten servers, for calls that match different kinds of them."""
    rules: list[dict[str, object]] = []
    for number in range(RULES // 5):
        suite = f"server{number}"
        rules += [
            {"deny": True, "suite": suite, "subtool": "delete_*"},
            {
                "deny": True,
                "suite": suite,
                "subtool": ["write_*", "edit_*"],
                "args": {"path": {"outside": "."}},
            },
            {
                "deny": True,
                "suite": suite,
                "subtool": "query*",
                "args": {"sql": {"glob": ["drop *", "*; drop *"]}},
            },
            {"deny": True, "suite": suite, "args": {"url": {"hostNotIn": ["*.example.com"]}}},
            {"ask": "session", "suite": suite, "hints": {"readOnly": False}},
        ]
    gate = GateRules(msgspec.convert({"rules": rules}, GateSettings))
    rounds = options.pick(20_000, 2_000)
    rows, times = [], {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "src").mkdir()
        Path(folder, "src", "main.py").touch()
        path: dict[str, object] = {"path": "src/main.py", "content": "x"}
        kinds: list[tuple[str, str, dict[str, object], Resolve]] = [
            ("by name: denied", "delete_issue", {"id": 7}, real_path),
            ("by annotations: asked", "create_issue", {"title": "It works"}, real_path),
            ("a text", "query", {"sql": "select name from users"}, real_path),
            ("a URL", "fetch", {"url": "https://api.example.com/v1/items"}, real_path),
            ("a path, looked up on disk", "write_file", path, real_path),
            ("the same path, without the disk", "write_file", path, str),
        ]
        for title, subtool, args, resolve in kinds:
            raw = json.dumps(args).encode()
            times[title] = decide(gate, subtool, raw, (folder, folder, "/root", resolve), rounds)
            rows.append([title, cell(times[title], 2)])
    report.tables.append(Table(f"Decision about a call, {RULES} rules", ["rules look at", "p50 µs"], rows))
    typical = statistics.median(times.values())
    report.figures["decision"] = {**times, "median of the kinds": typical}
    report.goals.append(Goal("decision with 50 rules, median of the kinds", typical, "at most", 5.0, " µs"))


def decide(gate: GateRules, subtool: str, raw: bytes, around: Around, rounds: int) -> float:
    """Return the median µs of a decision in the quietest of many batches, since machines are busy."""
    medians = [statistics.median(batch(gate, subtool, raw, around)) for _ in range(rounds // BATCH)]
    return min(medians) / 1000


def batch(gate: GateRules, subtool: str, raw: bytes, around: Around) -> list[int]:
    hints, took = ToolHints(), []
    for _ in range(BATCH):
        begin = time.perf_counter_ns()
        call = GateCall("tool", "server3", "server3_suite", subtool, "bench", "", "")
        found = gate.candidates(call)
        if found.settled is None:
            if found.needs_args:
                if gate.decide_by_names(found, "tool", hints, raw) is None:
                    gate.strictest(found, "tool", hints, readings(raw), Surroundings(*around))
            else:
                gate.decide_by_hints(found, "tool", hints)
        took.append(time.perf_counter_ns() - begin)
    return took
