"""What may stand in the entry of a child in governed mode: pure rules over text, before any file is looked at.

Owns what looks like a shell, code in an argument, a path that climbs, a variable that changes what runs. Knows nothing
of files or approvals. A value is never repeated where it may be a secret; its key is named instead.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from switchboard_mcp.config.documents import join_key
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.config.variables import expandable_strings


class LaunchFault(Struct, frozen=True):
    """What is wrong, and the key it stands under."""

    key: str
    why: str


SHELLS = frozenset(
    "sh ash bash csh dash elvish fish ksh mksh nu oksh osh pwsh powershell rbash rc rksh sash tcsh xonsh yash zsh cmd "
    "busybox toybox".split()
)
# Programs whose work is to run another program, which would then be what really runs.
WRAPPERS = frozenset(
    "awk bwrap chroot chrt command crontab dbus-run-session doas docker-compose emacs env eval exec expect fakeroot "
    "find firejail flock gawk gdb git ionice kubectl ld-linux lldb ltrace make mawk nc ncat netcat nice nohup nsenter "
    "nvim parallel perf pkexec proot rlwrap rsync run-parts runuser screen script setarch setpriv setsid socat sqlite "
    "ssh sshpass start-stop-daemon stdbuf strace su sudo systemd-run tar taskset tclsh time timeout tmux unbuffer "
    "unshare valgrind vi vim watch xargs xvfb-run".split()
)
# Package runners: what they run is looked up, and perhaps downloaded, anew at each start.
RUNNERS = frozenset("npx npm pnpm pnpx yarn bunx uvx uv pipx pdm poetry hatch rye conda mamba".split())
CONTAINERS = frozenset(("docker", "podman", "nerdctl"))


class Interpreter(Struct, frozen=True):
    """A program that runs a script: which of its flags are harmless. Any other is refused, known to be bad or not."""

    flags: frozenset[str] = frozenset()
    # Flags that begin so, with their value in the same word.
    prefixes: tuple[str, ...] = ()
    # A word before the script.
    verb: str = ""


INTERPRETERS: dict[str, Interpreter] = {
    "python": Interpreter(frozenset("-u -B -S -s -E -I -P -O -OO -q -d -v -b -bb".split())),
    "node": Interpreter(
        frozenset(
            "--no-warnings --enable-source-maps --no-deprecation --trace-warnings --use-system-ca".split()
        ),
        ("--max-old-space-size=", "--stack-trace-limit="),
    ),
    "deno": Interpreter(
        frozenset("--allow-net --allow-read --allow-env --cached-only --no-prompt --no-remote".split()),
        verb="run",
    ),
    "bun": Interpreter(frozenset({"--no-install"}), verb="run"),
    "java": Interpreter(frozenset({"-jar"}), ("-Xmx", "-Xms")),
    **dict.fromkeys(
        "clojure crystal dotnet elixir erl gjs groovy guile iex ipython irb jruby jshell julia jython kotlin lua "
        "luajit micropython mono ocaml octave osascript perl php qjs r racket raku rscript ruby runghc sbcl scala "
        "swift ts-node tsx wasmer wasmtime".split(),
        Interpreter(),
    ),
}
INTERPRETERS["nodejs"] = INTERPRETERS["node"]
INTERPRETERS["pypy"] = INTERPRETERS["graalpy"] = INTERPRETERS["python"]

# Never, whoever approves it: the loader runs foreign code in the program's place.
NEVER_SET = re.compile(r"(?:LD|DYLD)_.*|GCONV_PATH|GLIBC_TUNABLES|LOCPATH|NLSPATH|MALLOC_CONF", re.IGNORECASE)
# These change what runs. Each needs an approval of its very value.
STEERING = re.compile(
    r"PATH|IFS|ENV|HOME|TMPDIR|SHELL|SHELLOPTS|BASH_.*|BASHOPTS|ZDOTDIR|PS4|PROMPT_COMMAND|EDITOR|VISUAL|PAGER|BROWSER|"
    r".*_(?:PAGER|EDITOR|ASKPASS|PROXY)|NODE_(?:OPTIONS|PATH|REPL_.*|EXTRA_.*|V8_.*|COMPILE_CACHE|TLS_.*)|BUN_.*|"
    r"DENO_.*|TS_NODE_.*|NPM_CONFIG_.*|PIP_.*|UV_.*|XDG_.*|KUBECONFIG|AWS_(?:CONFIG_FILE|CA_BUNDLE)|LESS(?:OPEN|CLOSE)|"
    r"(?:REQUESTS|CURL)_CA_BUNDLE|JAVA_HOME|(?:.*_)?JAVA_OPTS|MAVEN_OPTS|GRADLE_OPTS|"
    r"PYTHON.*|VIRTUAL_ENV|CONDA_.*|PERL.*|RUBY.*|GEM_.*|BUNDLE_.*|PHP.*|LUA_.*|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|"
    r"JDK_JAVA_OPTIONS|CLASSPATH|R_(?:HOME|LIBS.*|PROFILE.*|ENVIRON.*)|JULIA_.*|DOTNET_.*|COMPLUS_.*|CORECLR_.*|"
    r"DOCKER_(?:HOST|CONFIG|CONTEXT|CERT_PATH)|CONTAINER_.*|GODEBUG|QT_PLUGIN_PATH|GTK_.*|"
    r"GIT_(?:SSH.*|EXEC_PATH|CONFIG.*|EXTERNAL_DIFF|PROXY_COMMAND|TEMPLATE_DIR|DIR|WORK_TREE)|OPENSSL_.*|SSL_CERT_.*",
    re.IGNORECASE,
)
# Of Switchboard's own environment these may be handed on: they are the operator's, not the developer's.
HANDED_ON = frozenset(
    "PATH HOME TMPDIR SHELL SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE NODE_EXTRA_CA_CERTS KUBECONFIG JAVA_HOME "
    "XDG_RUNTIME_DIR XDG_CONFIG_HOME XDG_DATA_HOME XDG_CACHE_HOME XDG_STATE_HOME "
    "HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy".split()
)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIGNS = re.compile(r"&&|[;`|<>&]|\$[({]")
_ADDRESS = re.compile(r"(?:--?[\w-]+=)?https?://[^\s&]+(?:&[^\s&]+)*")
_SHELL_AND_CODE = re.compile(r"-[a-z]*c[a-z]*|/[ck]", re.IGNORECASE)
# Invisible, or turning the order of what is read: nobody can approve what they cannot see.
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Cn"))
_LOOPBACK = re.compile(r"localhost|127(?:\.\d{1,3}){3}|::1", re.IGNORECASE)
_SECURE = {"https": 443, "wss": 443}
_PLAIN = {"http": 80, "ws": 80}
MAX_ARGUMENTS, MAX_LENGTH = 256, 8_192


def program_name(path: str) -> str:
    """The name a program goes by: without folder, extension, version or case."""
    name = path.replace("\\", "/").rpartition("/")[2].lower()
    name = re.sub(r"\.(?:exe|cmd|bat|com|js|cjs|mjs|sh)$", "", name)
    return re.sub(r"[-.]?\d[\d.]*[a-z]?$", "", name) or name


def command_key(spec: ChildSpec) -> str:
    """Where the command stands."""
    return next(expandable_strings(spec))[0]


def argument_key(spec: ChildSpec, index: int) -> str:
    """Where an argument stands."""
    return f"{join_key(_inner(spec), 'args')}[{index}]"


def variable_key(spec: ChildSpec, name: str) -> str:
    """Where a variable stands."""
    return join_key(join_key(_inner(spec), "env"), name)


def _inner(spec: ChildSpec) -> str:
    return join_key(spec.key, "command") if spec.nested else spec.key


def _words(spec: ChildSpec) -> Iterator[tuple[str, str]]:
    yield command_key(spec), spec.command
    for index, word in enumerate(spec.args):
        yield argument_key(spec, index), word


def only_what_is_seen(spec: ChildSpec) -> LaunchFault | None:
    """No newline, NUL or other control character, nothing invisible; lengths and counts that a person can read."""
    places = [*_words(spec), (join_key(spec.key, "cwd"), spec.cwd), (join_key(spec.key, "url"), spec.url)]
    places += [
        (join_key(join_key(spec.key, "headers"), name), name + value) for name, value in spec.headers.items()
    ]
    for key, text in places:
        if len(text) > MAX_LENGTH:
            return LaunchFault(key, f"is longer than {MAX_LENGTH} characters")
        plain = text.isascii() and text.isprintable()
        if not plain and any(unicodedata.category(character) in _UNSEEN for character in text):
            return LaunchFault(key, "holds a newline, a control character or one that cannot be seen")
    if len(spec.args) > MAX_ARGUMENTS:
        return LaunchFault(join_key(_inner(spec), "args"), f"has more than {MAX_ARGUMENTS} members")
    for name, value in spec.env.items():
        if "\0" in value:
            return LaunchFault(variable_key(spec, name), "holds a NUL character")
    return None


def no_shell_signs(spec: ChildSpec) -> LaunchFault | None:
    """Nothing that means something to a shell: there is none, so it was meant for one that somebody hopes to reach."""
    for key, word in _words(spec):
        # In the query of an address it joins two members.
        plain = word.replace("&", "") if _ADDRESS.fullmatch(word) else word
        found = _SIGNS.search(plain)
        if found:
            return LaunchFault(
                key, f"holds `{found[0].strip()}`, which only a shell understands; no shell is ever used"
            )
    return None


def no_shell(spec: ChildSpec) -> LaunchFault | None:
    """No shell as the program, and none among the arguments with code to run."""
    for index, (key, word) in enumerate(_words(spec)):
        if program_name(word) not in SHELLS:
            continue
        following = spec.args[index] if index < len(spec.args) else ""
        if index == 0 or _SHELL_AND_CODE.fullmatch(following):
            return LaunchFault(key, f"is a shell ({program_name(word)}); no shell is ever run")
    return None


def no_wrapper(spec: ChildSpec) -> LaunchFault | None:
    """No program that only runs another."""
    name = program_name(spec.command)
    if name in WRAPPERS:
        return LaunchFault(command_key(spec), f"`{name}` runs another program; name that program itself")
    return None


def one_word(spec: ChildSpec) -> LaunchFault | None:
    """A command is a program; its arguments stand in `args`."""
    if not spec.command:
        return LaunchFault(command_key(spec), "is empty")
    if re.search(r"\s", spec.command) and not spec.command.startswith("/"):
        return LaunchFault(command_key(spec), "holds a space; put the arguments into `args`")
    if spec.command.startswith(("-", "~", "%", "$", "@", "\\")):
        return LaunchFault(command_key(spec), "is neither the name of a program nor an absolute path")
    return None


def no_relative_path(spec: ChildSpec) -> LaunchFault | None:
    """A command with a folder is absolute; nothing climbs with `..`."""
    if "/" in spec.command and not spec.command.startswith("/"):
        return LaunchFault(command_key(spec), "is a relative path; write it from the root")
    for key, word in [*_words(spec), (join_key(spec.key, "cwd"), spec.cwd)]:
        if _climbs(word):
            return LaunchFault(key, "climbs with `..`; write the path from the root")
    if "\\" in spec.command:
        return LaunchFault(command_key(spec), "holds a backslash")
    return None


def _climbs(word: str) -> bool:
    return ".." in word and ".." in re.split(r"[/\\=:,]", word)


def no_code(spec: ChildSpec) -> LaunchFault | None:
    """An interpreter runs a file; code in an argument, or a module loaded before the file, is refused."""
    flaw = interpreter_flaw(program_name(spec.command), spec.args)
    return LaunchFault(argument_key(spec, flaw[0]), flaw[1]) if flaw else None


def interpreter_flaw(name: str, args: Sequence[str]) -> tuple[int, str] | None:
    """The first argument that keeps an interpreter from simply running a script, and why. None for other programs."""
    interpreter = INTERPRETERS.get(name)
    if interpreter is None:
        return None
    for index, word in enumerate(args):
        if word == interpreter.verb and word:
            continue
        if name == "python" and word == "-m":
            named = index + 1 < len(args) and re.fullmatch(
                r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", args[index + 1]
            )
            return None if named else (index, "`-m` needs the name of a module")
        if not word.startswith("-"):
            if "://" in word or word.startswith(("data:", "npm:", "jsr:")):
                return index, f"is no file; {name} would load its code from elsewhere"
            return None
        if word not in interpreter.flags and not word.startswith(interpreter.prefixes or ("\0",)):
            return (
                index,
                f"`{word.partition('=')[0]}` may change what {name} runs; only a script file can be approved",
            )
    return max(len(args) - 1, 0), f"{name} has no script to run, and would read code from its input"


def only_names(spec: ChildSpec) -> LaunchFault | None:
    """Variables have ordinary names, and none is of those that nobody may set."""
    for name in spec.env:
        if not _ENV_NAME.fullmatch(name):
            return LaunchFault(join_key(_inner(spec), "env"), "has a name that no variable should have")
        if NEVER_SET.fullmatch(name):
            return LaunchFault(
                variable_key(spec, name), "makes the system load other code; it cannot be approved"
            )
    return None


def safe_address(spec: ChildSpec) -> LaunchFault | None:
    """Encrypted, or on this machine; no password in it."""
    problem = address_flaw(spec.url)
    return LaunchFault(join_key(spec.key, "url"), problem) if problem else None


def address_flaw(url: str) -> str:
    """What is wrong with an address, or an empty string."""
    parts = _split(url)
    if parts is None or not parts.hostname:
        return "is no address"
    if "@" in parts.netloc:
        return "holds a user name or a password; use `headers` with a variable"
    local = parts.scheme in _PLAIN and _LOOPBACK.fullmatch(parts.hostname)
    if parts.scheme not in _SECURE and not local:
        return "is not encrypted; use https:// or wss://, or an address of this machine"
    return ""


def origin_of(url: str) -> str:
    """Scheme, host and port of an address, always in the same form; empty where it is none."""
    parts = _split(url)
    if parts is None or not parts.hostname:
        return ""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = parts.port or {**_SECURE, **_PLAIN}.get(parts.scheme, 0)
    return f"{parts.scheme}://{host}:{port}"


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        return parts if parts.port != 0 and "\\" not in url else None
    except ValueError:
        return None


Rule = Callable[[ChildSpec], LaunchFault | None]
LOCAL: tuple[Rule, ...] = (
    only_what_is_seen,
    one_word,
    no_shell_signs,
    no_shell,
    no_wrapper,
    no_relative_path,
    no_code,
    only_names,
)
REMOTE: tuple[Rule, ...] = (only_what_is_seen, safe_address)


def text_fault(spec: ChildSpec) -> LaunchFault | None:
    """The first rule that the entry breaks, its variables filled in already."""
    return first(rule(spec) for rule in (LOCAL if spec.kind == "stdio" else REMOTE))


def first(faults: Iterable[LaunchFault | None]) -> LaunchFault | None:
    """The first that is one."""
    return next((fault for fault in faults if fault is not None), None)
