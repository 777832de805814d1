/* Tries to leave a sandbox with system calls only, in a static program: no library, loader or interpreter that a rule
   could depend on. Run as `escape OUTSIDE WORKSPACE PID PORT UNIX IPV6`. Prints one line of JSON. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static char path[4096];
static int first = 1;

static char *in(const char *folder, const char *name) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void report(const char *name, long result) {
    printf("%s\"%s\": \"%s\"", first ? "{" : ", ", name, result < 0 ? strerror(errno) : "open");
    first = 0;
}

static long connect_to(int family, void *address, socklen_t size, int protocol) {
    int sock = socket(family, SOCK_STREAM, protocol);
    if (sock < 0) return -1;
    char byte;
    long result = connect(sock, address, size);
    if (result == 0 && family != AF_UNIX) result = recv(sock, &byte, 1, 0) == 1 ? 0 : -1;
    close(sock);
    return result;
}

int main(int argc, char **argv) {
    if (argc < 7) return 2;
    char *outside = argv[1], *workspace = argv[2];
    int pid = atoi(argv[3]);
    struct sockaddr_in tcp = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[4]))};
    tcp.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = tcp.sin_port, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in6 direct = six;
    inet_pton(AF_INET6, argv[6], &direct.sin6_addr);
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    strncpy(local.sun_path, argv[5], sizeof local.sun_path - 1);
    struct rlimit limit;
    char params[120] = {0};
    report("read_ssh_key", open(in(outside, ".ssh/id"), O_RDONLY));
    report("write_outside", open(in(outside, "new"), O_WRONLY | O_CREAT, 0600));
    report("chmod_outside", chmod(in(outside, "file"), 0600));
    report("stat_outside", open(in(outside, "file"), O_PATH));
    report("write_inside", open(in(workspace, "new"), O_WRONLY | O_CREAT, 0600));
    report("write_git_hooks", open(in(workspace, ".git/hooks/pre-commit"), O_WRONLY | O_CREAT, 0700));
    report("connect_tcp_loopback", connect_to(AF_INET, &tcp, sizeof tcp, 0));
    report("connect_mptcp_loopback", connect_to(AF_INET, &tcp, sizeof tcp, 262));
    report("connect_ipv6_loopback", connect_to(AF_INET6, &six, sizeof six, 0));
    report("connect_ipv6_direct_address", connect_to(AF_INET6, &direct, sizeof direct, 0));
    report("connect_ipv6_mptcp", connect_to(AF_INET6, &six, sizeof six, 262));
    report("send_raw_packet", socket(AF_INET, SOCK_RAW, 1));
    report("open_packet_socket", socket(17, SOCK_RAW, 0));
    report("connect_unix_socket", connect_to(AF_UNIX, &local, sizeof local, 0));
    report("signal_others", kill(pid, SIGCONT));
    report("ptrace_others", ptrace(PTRACE_SEIZE, pid, 0, 0));
    report("limit_others", prlimit(pid, RLIMIT_NOFILE, NULL, &limit));
    report("renice_others", setpriority(PRIO_PROCESS, pid, 0));
    report("open_vsock", socket(40, SOCK_STREAM, 0));
    report("io_uring", syscall(425, 1, params));
    report("mount", mount("tmpfs", "/tmp", "tmpfs", 0, NULL));
    report("user_namespace", unshare(CLONE_NEWUSER));
    printf("}\n");
    return 0;
}
