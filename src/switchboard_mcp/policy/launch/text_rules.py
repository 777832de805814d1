"""Text rules for a child's config entry in governed mode. Pure: no files, no approvals.

They refuse shells, code in arguments, paths with `..`, and variables that change what runs. Values are never repeated,
since they may be secrets; keys are named instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from switchboard_mcp.config.documents import join_key
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.config.variables import expandable_strings
from switchboard_mcp.suites.invisible_characters import find_invisible


class LaunchFault(Struct, frozen=True):
    """A broken rule: the reason, and the config key."""

    key: str
    why: str


SHELLS = frozenset(
    "sh ash bash csh dash elvish fish ksh mksh nu oksh osh pwsh powershell rbash rc rksh sash tcsh xonsh yash zsh cmd "
    "busybox toybox".split()
)
# Programs that run other programs, or code from their arguments: that would then be what really runs. A second line of
# defence, with clear messages: files and programs in the arguments are pinned or refused for any program (`arguments`).
WRAPPERS = frozenset(
    (
        # change how a program runs
        "aa-exec abduco agetty bwrap capsh cgexec choom chpst chroot chrt command coreutils cpulimit cross-env "
        "daemonize dbus-run-session direnv doas dotenv dotenvx dtach dumb-init eatmydata entr env eval exec expect "
        "fakechroot faked fakeroot fakeroot-sysv fakeroot-tcp faketime firejail flock fstab-decode getty gosu "
        "gprofng heaptrack i386 init ionice isolate jexec kitty linux32 linux64 login logsave ltrace luit minijail "
        "msgexec msgfilter multitime newgrp nice nodemon nohup not nsenter nsjail numactl openvt parallel perf "
        "pexec pkexec prlimit proot proxychains rlwrap rtcwake run-parts runcon runuser sccache schedtool screen "
        "script scriptlive setarch setlock setpriv setsid setuidgid sg softlimit sotruss start-stop-daemon stdbuf "
        "strace su su-exec sudo sulogin supervisord switch_root systemd taskset time timeout tini tmate tmux "
        "torify torsocks tsocks uclampset uftrace unbuffer unshare valgrind vgdb watch watchexec with-contenv "
        "x86_64 xargs xterm xvfb-run "
        # run commands elsewhere, or when something happens
        "ansible ansible-playbook at batch busctl crontab dbus-daemon dbus-send distcc gdbus kubectl mosh nc ncat "
        "netcat openvpn rlogin rsh rsync runscript scp service sftp slogin socat ssh ssh-add ssh-agent ssh-argv0 "
        "ssh-copy-id ssh-keygen sshfs sshpass systemctl tcpdump telnet virsh "
        # inject secrets and settings
        "aws-vault chamber doppler envconsul gcloud infisical op sops vault "
        # containers other than those in CONTAINERS
        "apptainer buildah containerd crictl crun ctr distrobox docker-compose finch flatpak incus kata-runtime "
        "lima lxc machinectl podman-compose runc singularity snap toolbox udocker "
        # build tools, compilers, linkers and debuggers
        "ant as bazel c++ c89 c99 cargo cc ccache clang clang++ cmake cpack cpp ctest dpkg dpkg-buildpackage g++ "
        "gcc gcore gcov gdb gdbtui gmake go gradle just ld ld.bfd ld.gold ldd libtool lld lldb lldb-server lli "
        "llvm-config llvm-exegesis llvm-jitlink llvm-jitlink-executor lto-dump make meson mvn ninja rpcgen rpm "
        "rpmbuild rr rustup sbt task tcc zig "
        # editors, pagers and other programs with a shell escape or a language of their own
        "apt apt-get awk bc bpftrace cscope ctags dc debconf debugfs diff3 dmsetup dvips ed editor emacs eqn ex "
        "find fsck ftp gawk git git-receive-pack git-shell git-upload-archive git-upload-pack gpg "
        "gpg-connect-agent gpgconf gpgtar groff iconv info initdb jjs joe journalctl jq jrunscript latex less lftp "
        "logrotate lualatex luatex m4 mail mailx man mawk mkfs more mount msfconsole mutt mysql nano nawk nginx "
        "nmap nroff nvim open optscript pager patch pax pdb pdflatex pdftex pg pg_ctl pic pico postgres procmail "
        "psql puppet red redis-server rview rvim sdiff sed sensible-browser sensible-editor sensible-pager slsh "
        "smbclient sort split sqlite sysctl tar tclsh tdbtool tex troff update-alternatives vi view vigr vim "
        "vim.basic vimdiff vimtutor vipw w3m wget wish xdg-open xelatex xetex zip"
    ).split()
)
_LOADER = re.compile(r"ld(?:64)?(?:[-.][\w.-]*)?\.so(?:\.[\d.]+)?|ld\.so|rtld|dyld", re.IGNORECASE)
_FAMILIES = re.compile(r"systemd-.*|s6-.*|runsv.*|busybox.*|toybox.*|nix(?:-.*)?|guix", re.IGNORECASE)
# The name of a target, as in `x86_64-linux-gnu-gcc`.
_TARGET = re.compile(r"^(?:[a-z0-9_]+-)+(?:gnu|gnueabi|gnueabihf|musl|eabi|elf|darwin[\d.]*|mingw\d*)-")
# Package runners look up, and perhaps download, what they run at each start.
RUNNERS = frozenset("npx npm pnpm pnpx yarn bunx uvx uv pipx pdm poetry hatch rye conda mamba".split())
CONTAINERS = frozenset(("docker", "podman", "nerdctl"))


class Interpreter(Struct, frozen=True):
    """An interpreter and its harmless flags. All other flags are refused."""

    flags: frozenset[str] = frozenset()
    # Prefixes of flags with the value in the same word.
    prefixes: tuple[str, ...] = ()
    # A subcommand before the script.
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

# Never approved: these make the loader run foreign code. With those that the C library ignores for setuid programs.
NEVER_SET = re.compile(
    r"(?:LD|DYLD)_.*|GCONV_PATH|GETCONF_DIR|GLIBC_TUNABLES|LOCPATH|NLSPATH|NIS_PATH|MALLOC_.*|HOSTALIASES|"
    r"LOCALDOMAIN|RES_OPTIONS|RESOLV_.*|TZDIR",
    re.IGNORECASE,
)
# These change what runs, by family. Each needs an approval of its exact value.
_STEERING = re.compile(
    # shells and the system
    r"PATH|IFS|ENV|HOME|TMPDIR|TMP|TEMP|SHELL|SHELLOPTS|BASH.*|ZDOTDIR|ZSH.*|KSH_.*|FPATH|CDPATH|PS[0-4]|PROMPT_COMMAND|"
    r"INPUTRC|EDITOR|VISUAL|PAGER|BROWSER|TERMINFO.*|TERMCAP|XDG_.*|LESS.*|MAN(?:PATH|PAGER|OPT)|GROFF_.*|EXINIT|VIM.*|"
    r"NVIM.*|EMACS.*|SSH_.*|SUDO_.*|.*_(?:PAGER|EDITOR|ASKPASS|PROXY|PRELOAD|WRAPPER|EXECUTABLE|EXECUTABLE_PATH|"
    r"LIBRARY_PATH|MODULE_PATH|PLUGIN_PATH|PLUGINS_PATH|CA_BUNDLE)|NO_PROXY|"
    # interpreters
    r"NODE_.*|BUN_.*|DENO_.*|TS_NODE_.*|TSX_.*|TSCONFIG.*|ELECTRON_.*|V8_.*|"
    r"PYTHON.*|PYENV_.*|VIRTUAL_ENV.*|CONDA_.*|MAMBA_.*|IPYTHON.*|PERL.*|RUBY.*|RBENV_.*|GEM_.*|BUNDLE.*|IRBRC|PHP.*|"
    r"COMPOSER_.*|LUA_.*|LUAROCKS_.*|TCL(?:LIB|_).*|TK_LIBRARY|GUILE_.*|JULIA_.*|R_(?:HOME|LIBS|PROFILE|ENVIRON|DEFAULT|ARCH|SHARE|INCLUDE).*|RENV_.*|OCTAVE_.*|ERL_.*|ELIXIR_.*|MIX_.*|OCAML.*|OPAM.*|"
    r"CAML.*|RACKET.*|PLT[A-Z].*|RAKU.*|SBCL_.*|GHC_.*|GHCRTS|SWIFT_.*|WASMTIME_.*|WASMER_.*|"
    r"JAVA_.*|_JAVA_.*|.*JAVA.*OPT.*|JDK_.*|JRE_.*|JVM_.*|.*_JVM_OPTS|.*CLASSPATH|MAVEN_.*|GRADLE_.*|GROOVY_.*|KOTLIN_.*|SCALA_.*|SBT_.*|"
    r"DOTNET_.*|COMPLUS_.*|CORECLR_.*|MONO_.*|NUGET_.*|GO(?:DEBUG|FLAGS|PATH|ROOT|PROXY|ENV|WORK|TOOLCHAIN|BIN)|"
    r"CARGO_.*|RUST(?:C|UP|FLAGS|DOC).*|"
    # package managers and version managers
    r"NPM_.*|PNPM_.*|YARN_.*|COREPACK_.*|NVM_.*|FNM_.*|VOLTA_.*|ASDF_.*|MISE_.*|PIP_.*|PIPX_.*|UV_.*|POETRY_.*|PDM_.*|"
    r"HATCH_.*|RYE_.*|NIX_.*|"
    # tools that run helpers from their settings
    r"GIT_.*|DOCKER_.*|PODMAN_.*|NERDCTL_.*|CONTAINERS?_.*|CONTAINERD_.*|BUILDKIT_.*|COMPOSE_.*|KUBECONFIG|HELM_.*|"
    r"AWS_(?:CONFIG_FILE|SHARED_CREDENTIALS_FILE|CA_BUNDLE)|CLOUDSDK_.*|BOTO_CONFIG|TF_CLI_.*|ANSIBLE_.*|MAKE(?:FLAGS|FILES)|"
    r"CC|CXX|CPP|GCC_EXEC_PREFIX|COMPILER_PATH|PUPPETEER_EXECUTABLE.*|PLAYWRIGHT_.*|CHROME_(?:PATH|BIN|EXEC|DEVEL|WRAPPER|FLAGS).*|GNUPGHOME|"
    # libraries that load plugins or settings
    r"OPENSSL_.*|SSL_CERT_.*|SSLKEYLOGFILE|KRB5_.*|SASL_.*|ODBC.*|LIBMYSQL_.*|PGSERVICEFILE|PGSYSCONFDIR|QT_.*|GTK_.*|"
    r"GIO_.*|GDK_.*|GST_.*|GI_.*|LIBGL_.*|VK_(?:LAYER|ICD|INSTANCE|ADD|DRIVER|LOADER).*|ALSA_.*|MAGICK_.*|GS_(?:LIB|OPTIONS|FONTPATH)|TEXMF.*",
    re.IGNORECASE,
)
# Members of these families that servers often set: no program looks up code by them.
_NOT_STEERING = re.compile(
    r"NODE_ENV|GIT_(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL|DATE)|CONTAINER_(?:NAME|ID)|SSH_(?:USER|PORT)|"
    r".*_(?:TOKEN|API_?KEY|SECRET|PASSWORD|USERNAME)",
    re.IGNORECASE,
)


def is_steering(name: str) -> bool:
    """Return True for an environment variable that changes what runs."""
    spellings = (name, name.lstrip("_"))  # `_PYTHON_SYSCONFIGDATA_NAME` names a module
    return any(map(_STEERING.fullmatch, spellings)) and not any(map(_NOT_STEERING.fullmatch, spellings))


# Children may inherit these from Switchboard's environment: they are set by the operator, not the developer.
INHERITABLE = frozenset(
    "PATH HOME TMPDIR SHELL SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE NODE_EXTRA_CA_CERTS KUBECONFIG JAVA_HOME "
    "XDG_RUNTIME_DIR XDG_CONFIG_HOME XDG_DATA_HOME XDG_CACHE_HOME XDG_STATE_HOME "
    "HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy".split()
)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_METACHARACTERS = re.compile(r"&&|[;`|<>&]|\$[({]")
_ADDRESS = re.compile(r"(?:--?[\w-]+=)?https?://[^\s&]+(?:&[^\s&]+)*")
_SHELL_AND_CODE = re.compile(r"-[a-z]*c[a-z]*|/[ck]", re.IGNORECASE)
_LOOPBACK = re.compile(r"localhost|127(?:\.\d{1,3}){3}|::1", re.IGNORECASE)
_SECURE = {"https": 443, "wss": 443}
_PLAIN = {"http": 80, "ws": 80}
MAX_ARGUMENTS, MAX_LENGTH = 256, 8_192


def program_name(path: str) -> str:
    """Return the name of a program without folder, extension, version or case."""
    name = path.replace("\\", "/").rpartition("/")[2].lower()
    name = re.sub(r"\.(?:exe|cmd|bat|com|js|cjs|mjs|sh)$", "", name)
    return re.sub(r"[-.]?\d[\d.]*[a-z]?$", "", name) or name


def runs_others(path: str) -> str:
    """Return the name of a program that runs others or code from its arguments, or an empty string."""
    base = path.rpartition("/")[2].lower()
    if _LOADER.fullmatch(base):
        return base
    for name in (_TARGET.sub("", base), _TARGET.sub("", program_name(path))):
        if name in WRAPPERS or _FAMILIES.fullmatch(name):
            return name
    return ""


def command_key(spec: ChildSpec) -> str:
    """Return the config key of the command."""
    return next(expandable_strings(spec))[0]


def argument_key(spec: ChildSpec, index: int) -> str:
    """Return the config key of an argument."""
    return f"{join_key(_inner(spec), 'args')}[{index}]"


def variable_key(spec: ChildSpec, name: str) -> str:
    """Return the config key of an environment variable."""
    return join_key(join_key(_inner(spec), "env"), name)


def _inner(spec: ChildSpec) -> str:
    return join_key(spec.key, "command") if spec.nested else spec.key


def _words(spec: ChildSpec) -> Iterator[tuple[str, str]]:
    yield command_key(spec), spec.command
    for index, word in enumerate(spec.args):
        yield argument_key(spec, index), word


def no_invisible_characters(spec: ChildSpec) -> LaunchFault | None:
    """Refuse control and invisible characters, and entries too long for a person to review."""
    places = [*_words(spec), (join_key(spec.key, "cwd"), spec.cwd), (join_key(spec.key, "url"), spec.url)]
    places += [
        (join_key(join_key(spec.key, "headers"), name), name + value) for name, value in spec.headers.items()
    ]
    for key, text in places:
        if len(text) > MAX_LENGTH:
            return LaunchFault(key, f"is longer than {MAX_LENGTH} characters")
        if find_invisible(text):  # What cannot be seen cannot be approved.
            return LaunchFault(key, "contains a newline, a control character or an invisible character")
    if len(spec.args) > MAX_ARGUMENTS:
        return LaunchFault(join_key(_inner(spec), "args"), f"has more than {MAX_ARGUMENTS} members")
    for name, value in spec.env.items():
        if "\0" in value:
            return LaunchFault(variable_key(spec, name), "contains a NUL character")
    return None


def no_shell_metacharacters(spec: ChildSpec) -> LaunchFault | None:
    """Refuse shell metacharacters. No shell is ever used, so their presence suggests an injection attempt."""
    for key, word in _words(spec):
        # In the query of a URL, `&` is harmless.
        plain = word.replace("&", "") if _ADDRESS.fullmatch(word) else word
        match = _METACHARACTERS.search(plain)
        if match:
            return LaunchFault(
                key, f"contains the shell metacharacter `{match[0].strip()}`; no shell is ever used"
            )
    return None


def no_shell_in_entry(spec: ChildSpec) -> LaunchFault | None:
    """Refuse a shell as the program, or in the arguments with code to run."""
    for index, (key, word) in enumerate(_words(spec)):
        if program_name(word) not in SHELLS:
            continue
        following = spec.args[index] if index < len(spec.args) else ""
        if index == 0 or _SHELL_AND_CODE.fullmatch(following):
            return LaunchFault(key, f"is a shell ({program_name(word)}); no shell is ever run")
    return None


def no_wrapper(spec: ChildSpec) -> LaunchFault | None:
    """Refuse programs that only run another."""
    name = runs_others(spec.command)
    if name:
        return LaunchFault(command_key(spec), f"`{name}` runs another program; name that program itself")
    return None


def command_without_arguments(spec: ChildSpec) -> LaunchFault | None:
    """Require the command to be a program name or path, without arguments."""
    if not spec.command:
        return LaunchFault(command_key(spec), "is empty")
    if re.search(r"\s", spec.command) and not spec.command.startswith("/"):
        return LaunchFault(command_key(spec), "contains a space; put the arguments in `args`")
    if spec.command.startswith(("-", "~", "%", "$", "@", "\\")):
        return LaunchFault(command_key(spec), "is neither the name of a program nor an absolute path")
    return None


def no_relative_path(spec: ChildSpec) -> LaunchFault | None:
    """Refuse relative paths as the command, and `..` anywhere."""
    if "/" in spec.command and not spec.command.startswith("/"):
        return LaunchFault(command_key(spec), "is a relative path; use an absolute path")
    for key, word in [*_words(spec), (join_key(spec.key, "cwd"), spec.cwd)]:
        if _has_parent_reference(word):
            return LaunchFault(key, "contains `..`; use an absolute path")
    if "\\" in spec.command:
        return LaunchFault(command_key(spec), "contains a backslash")
    return None


def _has_parent_reference(word: str) -> bool:
    return ".." in word and ".." in re.split(r"[/\\=:,]", word)


def no_code(spec: ChildSpec) -> LaunchFault | None:
    """Require interpreters to run a script file: no code in arguments, no preloaded modules."""
    flaw = interpreter_flaw(program_name(spec.command), spec.args)
    return LaunchFault(argument_key(spec, flaw[0]), flaw[1]) if flaw else None


def interpreter_flaw(name: str, args: Sequence[str]) -> tuple[int, str] | None:
    """Return the index of the first argument that is not allowed before a script, and why, or None."""
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
                return index, f"is not a file; {name} would load its code from elsewhere"
            return None
        if word not in interpreter.flags and not word.startswith(interpreter.prefixes or ("\0",)):
            return (
                index,
                f"`{word.partition('=')[0]}` may change what {name} runs; only a script file can be approved",
            )
    return max(len(args) - 1, 0), f"{name} has no script to run, and would read code from its input"


def valid_variable_names(spec: ChildSpec) -> LaunchFault | None:
    """Refuse environment variables with invalid names, and those that are never allowed."""
    for name in spec.env:
        if not _ENV_NAME.fullmatch(name):
            return LaunchFault(join_key(_inner(spec), "env"), "has an invalid variable name")
        if NEVER_SET.fullmatch(name):
            return LaunchFault(
                variable_key(spec, name), "makes the system load other code, so it cannot be approved"
            )
    return None


def safe_address(spec: ChildSpec) -> LaunchFault | None:
    """Require an encrypted URL, or one on this machine, without a password."""
    problem = address_flaw(spec.url)
    return LaunchFault(join_key(spec.key, "url"), problem) if problem else None


def address_flaw(url: str) -> str:
    """Return why a URL is not allowed, or an empty string."""
    parts = _split(url)
    if parts is None or not parts.hostname:
        return "is not a valid URL"
    if "@" in parts.netloc:
        return "contains a user name or a password; use `headers` with a variable"
    local = parts.scheme in _PLAIN and _LOOPBACK.fullmatch(parts.hostname)
    if parts.scheme not in _SECURE and not local:
        return "is not encrypted; use https:// or wss://, or a loopback address"
    return ""


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL in canonical form, or an empty string for an invalid one."""
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


TextRule = Callable[[ChildSpec], LaunchFault | None]
LOCAL_TEXT_RULES: tuple[TextRule, ...] = (
    no_invisible_characters,
    command_without_arguments,
    no_shell_metacharacters,
    no_shell_in_entry,
    no_wrapper,
    no_relative_path,
    no_code,
    valid_variable_names,
)
REMOTE_TEXT_RULES: tuple[TextRule, ...] = (no_invisible_characters, safe_address)


def find_text_fault(spec: ChildSpec) -> LaunchFault | None:
    """Return the fault of the first rule that the entry, with variables expanded, breaks, or None."""
    return first_fault(
        rule(spec) for rule in (LOCAL_TEXT_RULES if spec.kind == "stdio" else REMOTE_TEXT_RULES)
    )


def first_fault(faults: Iterable[LaunchFault | None]) -> LaunchFault | None:
    """Return the first fault, or None."""
    return next((fault for fault in faults if fault is not None), None)
