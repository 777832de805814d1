from __future__ import annotations

from typing import Any

from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.policy.launch.text_rules import (
    NEVER_SET,
    find_text_fault,
    is_steering,
    origin_of,
    program_name,
)
from tests.cases import each_case

FINE: list[dict[str, Any]] = [
    {"command": "npx", "args": ["-y", "@scope/pkg@1.2.3", "--root", "/data"]},
    {"command": "/usr/bin/node", "args": ["--no-warnings", "/srv/index.js"]},
    {"command": "/usr/bin/python3.11", "args": ["-u", "-m", "pkg.server"]},
    {"command": "python", "args": ["server.py", "-c", "is for the script"]},
    {
        "command": "/opt/My Tools/server",
        "args": ["https://host/path?a=1&b=2", "--url=https://host/?a&b=2", "name=Ada", "ünïcode"],
    },
    {"command": "uvx", "args": ["mcp-server-git", "--repository", "/src"]},
    {"command": "docker", "args": ["run", "-i", "image"]},
    {"command": "mcp-server-time", "args": [], "env": {"TOKEN": "a;b`c$(d)\nmore"}},
    {"kind": "http", "url": "https://mcp.example.com/mcp?key=a&b=c"},
    {"kind": "http", "url": "http://127.0.0.1:8080/mcp"},
    {"kind": "ws", "url": "ws://localhost/mcp"},
    {"kind": "sse", "url": "http://[::1]:80/sse"},
]

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"command": "node", "args": ["/x.js", "; rm -rf /"]}, "args[1]", "`;`"),
    ({"command": "node; rm -rf /"}, "command", "space"),
    ({"command": "node;id"}, "command", "`;`"),
    ({"command": "node", "args": ["$(id)"]}, "args[0]", "`$(`"),
    ({"command": "node", "args": ["/x.js", "`id`"]}, "args[1]", "```"),
    ({"command": "node", "args": ["/x.js", "a && b"]}, "args[1]", "`&&`"),
    ({"command": "node", "args": ["/x.js", "a&b"]}, "args[1]", "`&`"),
    ({"command": "node", "args": ["/x.js", "https://a/?b=1& id"]}, "args[1]", "`&`"),
    ({"command": "node", "args": ["/x.js", "a &"]}, "args[1]", "`&`"),
    ({"command": "node", "args": ["/x.js", "a|b"]}, "args[1]", "`|`"),
    ({"command": "node", "args": ["/x.js", "> /etc/passwd"]}, "args[1]", "`>`"),
    ({"command": "node", "args": ["/x.js", "${IFS}"]}, "args[1]", "`${`"),
    ({"command": "node", "args": ["/x.js", "https://a/?b=1&&c"]}, "args[1]", "`&&`"),
    ({"command": "node", "args": ["/x.js", "a\nb"]}, "args[1]", "newline"),
    ({"command": "node", "args": ["/x.js", "a\x00b"]}, "args[1]", "control character"),
    ({"command": "node", "args": ["/x.js", "\u202egnp.exe"]}, "args[1]", "invisible"),
    ({"command": "node", "args": ["/x.js", "zero\u200bwidth"]}, "args[1]", "invisible"),
    ({"command": "node", "args": ["/x.js"] * 300}, "args", "256"),
    ({"command": "node", "args": ["/" + "x" * 9000]}, "args[0]", "8192"),
    ({"command": "sh", "args": ["-c", "id"]}, "command", "a shell (sh)"),
    ({"command": "/bin/bash", "args": ["/x.sh"]}, "command", "a shell (bash)"),
    ({"command": "/usr/bin/zsh5"}, "command", "a shell (zsh)"),
    ({"command": "PowerShell.EXE"}, "command", "a shell (powershell)"),
    ({"command": "busybox", "args": ["sh"]}, "command", "a shell (busybox)"),
    ({"command": "tool", "args": ["run", "bash", "-lc", "id"]}, "args[1]", "a shell (bash)"),
    ({"command": "env", "args": ["node", "/x.js"]}, "command", "runs another program"),
    ({"command": "/usr/bin/sudo", "args": ["node"]}, "command", "runs another program"),
    ({"command": "xargs"}, "command", "runs another program"),
    ({"command": "/usr/bin/git", "args": ["-c", "core.pager=x", "log"]}, "command", "runs another program"),
    ({"command": "kubectl", "args": ["exec", "pod"]}, "command", "runs another program"),
    ({"command": "pypy3", "args": ["-c", "code"]}, "args[0]", "`-c`"),
    ({"command": "ipython", "args": ["-c", "code"]}, "args[0]", "`-c`"),
    ({"command": "qjs", "args": ["-e", "code"]}, "args[0]", "`-e`"),
    ({"command": "./server"}, "command", "relative"),
    ({"command": "bin/server"}, "command", "relative"),
    ({"command": "/opt/../bin/server"}, "command", "`..`"),
    ({"command": "node", "args": ["../x.js"]}, "args[0]", "`..`"),
    ({"command": "node", "args": ["/x.js", "--root=../.."]}, "args[1]", "`..`"),
    ({"command": "node", "args": ["/x.js"], "cwd": "/work/../etc"}, "cwd", "`..`"),
    ({"command": "~/server"}, "command", "absolute"),
    ({"command": "-server"}, "command", "absolute"),
    ({"command": "C:\\server.exe"}, "command", "backslash"),
    ({"command": ""}, "command", "empty"),
    ({"command": "node", "args": ["-e", "code"]}, "args[0]", "`-e`"),
    ({"command": "node", "args": ["--eval=code"]}, "args[0]", "`--eval`"),
    ({"command": "node", "args": ["-p", "code"]}, "args[0]", "`-p`"),
    ({"command": "node", "args": ["-r", "/evil.js", "/x.js"]}, "args[0]", "`-r`"),
    ({"command": "node", "args": ["--no-warnings", "--import", "/evil.js", "/x.js"]}, "args[1]", "`--import`"),
    ({"command": "node", "args": ["--require=/evil.js", "/x.js"]}, "args[0]", "`--require`"),
    ({"command": "node", "args": ["--inspect=0.0.0.0", "/x.js"]}, "args[0]", "`--inspect`"),
    ({"command": "node", "args": ["data:text/javascript,evil"]}, "args[0]", "elsewhere"),
    ({"command": "deno", "args": ["run", "https://evil.example/x.ts"]}, "args[1]", "elsewhere"),
    ({"command": "node"}, "args[0]", "no script"),
    ({"command": "node", "args": ["-"]}, "args[0]", "may change"),
    ({"command": "python3", "args": ["-c", "code"]}, "args[0]", "`-c`"),
    ({"command": "python", "args": ["-Ic", "code"]}, "args[0]", "`-Ic`"),
    ({"command": "python", "args": ["-X", "importtime", "x.py"]}, "args[0]", "`-X`"),
    ({"command": "python", "args": ["-m"]}, "args[0]", "name of a module"),
    ({"command": "python", "args": ["-m", "a-b"]}, "args[0]", "name of a module"),
    ({"command": "/usr/bin/perl5.36", "args": ["-e", "code"]}, "args[0]", "`-e`"),
    ({"command": "ruby", "args": ["-e", "code"]}, "args[0]", "`-e`"),
    ({"command": "php", "args": ["-r", "code"]}, "args[0]", "`-r`"),
    ({"command": "tool", "env": {"LD_PRELOAD": "/evil.so"}}, "env.LD_PRELOAD", "cannot be approved"),
    ({"command": "tool", "env": {"DYLD_INSERT_LIBRARIES": "x"}}, "env.DYLD_INSERT_LIBRARIES", "cannot"),
    ({"command": "tool", "env": {"A B": "x"}}, "env", "invalid variable name"),
    ({"command": "tool", "env": {"A": "x\0"}}, "env.A", "NUL"),
    ({"kind": "http", "url": "http://mcp.example.com/"}, "url", "not encrypted"),
    ({"kind": "ws", "url": "ws://10.0.0.1/"}, "url", "not encrypted"),
    ({"kind": "http", "url": "http://127.0.0.1.evil.example/"}, "url", "not encrypted"),
    ({"kind": "http", "url": "http://localhost@evil.example/"}, "url", "user name"),
    ({"kind": "http", "url": "https://user:pass@mcp.example.com/"}, "url", "user name"),
    ({"kind": "http", "url": "file:///etc/passwd"}, "url", "not a valid URL"),
    ({"kind": "http", "url": "https://good.example\\@evil.example/"}, "url", "not a valid URL"),
    ({"kind": "http", "url": "https://x/\r\nHost: y"}, "url", "newline"),
    ({"kind": "http", "url": "https://x/", "headers": {"A": "b\nC: d"}}, "headers.A", "newline"),
]  # fmt: skip


def spec(entry: dict[str, Any]) -> ChildSpec:
    return ChildSpec(name="child", source="file.json", **entry)


@each_case("entry", FINE)
def test_ordinary_entries_break_no_rule(entry: dict[str, Any]) -> None:
    assert find_text_fault(spec(entry)) is None


@each_case(("entry", "key", "why"), REFUSED)
def test_a_hostile_entry_is_refused_with_its_key(entry: dict[str, Any], key: str, why: str) -> None:
    fault = find_text_fault(spec(entry))
    assert fault is not None
    assert fault.key == key
    assert why in fault.why


def test_keys_are_those_of_the_dialect_it_is_written_in() -> None:
    written = ChildSpec(
        name="c", source="f", key="mcpServers.c", command="node", args=["/x.js", ";"], nested=True
    )
    fault = find_text_fault(written)
    assert fault is not None
    assert fault.key == "mcpServers.c.command.args[1]"


@each_case(
    "name",
    "LD_PRELOAD ld_library_path LD_AUDIT LD_ANYTHING DYLD_LIBRARY_PATH GCONV_PATH GLIBC_TUNABLES LOCPATH NLSPATH "
    "MALLOC_CHECK_ MALLOC_CONF HOSTALIASES RES_OPTIONS RESOLV_HOST_CONF GETCONF_DIR TZDIR LOCALDOMAIN".split(),
)
def test_variables_of_the_loader_and_the_c_library_can_never_be_set(name: str) -> None:
    assert NEVER_SET.fullmatch(name)


@each_case(
    "name",
    """
    PATH IFS ENV HOME TMPDIR SHELL SHELLOPTS BASH_ENV BASH_FUNC_x BASHOPTS ZDOTDIR PS4 PROMPT_COMMAND EDITOR
    VISUAL PAGER BROWSER GIT_PAGER SUDO_ASKPASS HTTPS_PROXY no_proxy NODE_OPTIONS NODE_PATH
    NODE_EXTRA_CA_CERTS NODE_REPL_EXTERNAL_MODULE NODE_TLS_REJECT_UNAUTHORIZED NODE_V8_COVERAGE
    NODE_COMPILE_CACHE NODE_CHANNEL_FD NODE_ANYTHING_NEW BUN_INSTALL DENO_DIR TS_NODE_PROJECT
    TSX_TSCONFIG_PATH npm_config_registry NPM_CONFIG_PREFIX npm_execpath PNPM_HOME YARN_RC_FILENAME
    COREPACK_NPM_REGISTRY NVM_DIR VOLTA_HOME ASDF_DIR MISE_CONFIG PYTHONPATH PYTHONSTARTUP PYTHONHOME
    _PYTHON_SYSCONFIGDATA_NAME
    PYTHONUSERBASE PYTHONINSPECT PYTHONWARNINGS PYTHONBREAKPOINT PYENV_VERSION VIRTUAL_ENV CONDA_PREFIX
    PIP_INDEX_URL PIP_CONFIG_FILE PIPX_HOME UV_INDEX_URL UV_PYTHON UV_CONFIG_FILE POETRY_HOME PERL5OPT
    PERL5LIB PERLLIB PERL5DB RUBYOPT RUBYLIB GEM_PATH BUNDLE_GEMFILE BUNDLER_ORIG_PATH PHPRC PHP_INI_SCAN_DIR
    LUA_PATH LUA_INIT LUA_CPATH_5_4 TCLLIBPATH GUILE_LOAD_PATH JULIA_LOAD_PATH R_PROFILE_USER R_ENVIRON R_LIBS
    ERL_FLAGS ERL_LIBS ELIXIR_ERL_OPTIONS OCAMLRUNPARAM OCTAVE_PATH JAVA_TOOL_OPTIONS _JAVA_OPTIONS
    JDK_JAVA_OPTIONS JAVA_HOME JAVA_OPTS CATALINA_JAVA_OPTS CLASSPATH MAVEN_OPTS GRADLE_OPTS
    DOTNET_STARTUP_HOOKS DOTNET_ROOT COMPlus_x CORECLR_PROFILER MONO_PATH GODEBUG GOFLAGS GOPATH CARGO_HOME
    RUSTC_WRAPPER RUSTFLAGS GIT_SSH GIT_SSH_COMMAND GIT_EXEC_PATH GIT_CONFIG_COUNT GIT_CONFIG_KEY_0 GIT_DIR
    GIT_EXTERNAL_DIFF GIT_TEMPLATE_DIR GIT_ASKPASS GIT_ANYTHING_NEW DOCKER_HOST DOCKER_CONFIG DOCKER_CONTEXT
    CONTAINER_HOST CONTAINERS_CONF PODMAN_CONNECTIONS_CONF KUBECONFIG HELM_PLUGINS AWS_CONFIG_FILE
    AWS_SHARED_CREDENTIALS_FILE CLOUDSDK_CONFIG TF_CLI_CONFIG_FILE ANSIBLE_CONFIG MAKEFLAGS GCC_EXEC_PREFIX CC
    LESSOPEN LESSCLOSE MANPAGER VIMINIT EXINIT EMACSLOADPATH SSH_ASKPASS SSH_AUTH_SOCK OPENSSL_CONF
    OPENSSL_ENGINES SSL_CERT_FILE SSLKEYLOGFILE REQUESTS_CA_BUNDLE KRB5_CONFIG QT_PLUGIN_PATH GTK_MODULES
    GIO_EXTRA_MODULES GST_PLUGIN_PATH XDG_CONFIG_HOME PUPPETEER_EXECUTABLE_PATH CHROME_PATH
    PLAYWRIGHT_BROWSERS_PATH ELECTRON_RUN_AS_NODE TERMINFO GNUPGHOME FOO_LIBRARY_PATH FOO_PRELOAD
    """.split(),
)
def test_every_variable_that_changes_the_program_is_known(name: str) -> None:
    assert is_steering(name)
    assert is_steering(name.lower())


@each_case(
    "name",
    """
    GITHUB_TOKEN API_KEY LOG_LEVEL GIT_AUTHOR_NAME REGION NODE_ENV GHCR_TOKEN NPM_TOKEN DOCKER_PASSWORD
    VK_TOKEN TZ LANG DATABASE_URL PGHOST REDIS_URL AWS_REGION AWS_ACCESS_KEY_ID OPENAI_API_KEY DEBUG PORT
    MEMORY_FILE_PATH GOOGLE_API_KEY RUST_LOG RUST_BACKTRACE GIT_TOKEN SSH_USER R2_BUCKET MIXPANEL_PROJECT
    MALLORY CCTV
    """.split(),
)
def test_ordinary_variables_change_nothing(name: str) -> None:
    assert not is_steering(name)
    assert not NEVER_SET.fullmatch(name)


@each_case(
    ("path", "name"),
    [
        ("/usr/bin/python3.11", "python"),
        ("node", "node"),
        ("C:\\Tools\\Node.EXE", "node"),
        ("/bin/bash-5.2", "bash"),
        ("mcp-server-time", "mcp-server-time"),
        ("npx.cmd", "npx"),
        ("7", "7"),
    ],
)
def test_a_program_goes_by_its_plain_name(path: str, name: str) -> None:
    assert program_name(path) == name


@each_case(
    ("url", "origin"),
    [
        ("https://Mcp.Example.com/mcp", "https://mcp.example.com:443"),
        ("https://mcp.example.com:8443/", "https://mcp.example.com:8443"),
        ("http://[::1]/x", "http://[::1]:80"),
        ("nonsense", ""),
        ("https://host:99999/", ""),
    ],
)
def test_an_origin_has_one_form(url: str, origin: str) -> None:
    assert origin_of(url) == origin
