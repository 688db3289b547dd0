"""An agent that tries to leave its sandbox, as amp. What came of each attempt is a line in its folder."""
import ctypes, json, os, signal, socket, struct, subprocess, sys, urllib.request

print(json.dumps({"type": "system", "subtype": "init", "session_id": "T-1"}), flush=True)
told = json.load(open("told.json"))
attempts = []


def attempt(name):
    def keep(fn):
        attempts.append((name, fn))
        return fn

    return keep


def read(path):
    with open(path, "rb") as f:
        return f.read(1 << 20).decode("utf-8", "replace")


def connect(family, address):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(20)
    s.connect(address)
    return s


def proxy():
    host, port = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
    return host, int(port)


def tunnel(target):
    """CONNECT at the proxy; what is behind it answers, or this raises."""
    s = connect(socket.AF_INET, proxy())
    s.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    said = s.recv(4096).decode()
    if " 200 " not in said.split("\n")[0]:
        raise PermissionError(said.strip().replace("\r\n", " "))
    s.sendall(f"GET / HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n".encode())
    return s.recv(4096).decode()


def listening(address):
    s = connect(socket.AF_INET, tuple(address))
    s.sendall(b"GET / HTTP/1.0\r\n\r\n")
    return s.recv(100).decode()


def shell(command):
    out = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=60)
    if out.returncode:
        raise PermissionError(out.stdout + out.stderr)
    return out.stdout


# The data folder, which is in the folder of the run.
attempt("operator.token in the data folder")(lambda: read("signalbox-data/operator.token"))
attempt("operator.token by its whole path")(lambda: read(told["data"] + "/operator.token"))
attempt("operator.token through a link")(lambda: read("link-to-data/operator.token"))
attempt("signalbox.yaml")(lambda: read("signalbox-data/signalbox.yaml") or 1 / 0)
attempt("the configuration that was named")(lambda: read("named.yaml") or 1 / 0)
attempt("the database")(lambda: shell("cat signalbox-data/*.db*"))
attempt("a file into the data folder")(lambda: open("signalbox-data/planted", "w").write("x"))
attempt("the data folder under another name")(lambda: os.rename("signalbox-data", "elsewhere"))
attempt("the Unix socket of AHP")(lambda: connect(socket.AF_UNIX, told["data"] + "/ahp.sock") and "connected")
attempt("every socket of the data folder")(lambda: shell("ls signalbox-data/* | grep ."))

# The home folder, and the machine.
attempt("a file of the home folder")(lambda: read(told["home"] + "/secret"))
attempt("the home folder through a link in the repository")(lambda: read("link-to-home/secret"))
attempt("a key of SSH")(lambda: read(told["home"] + "/.ssh/id_ed25519"))
attempt("a file beside the repository")(lambda: read(told["beside"]))
attempt("/etc/shadow")(lambda: read("/etc/shadow"))
attempt("a program of the home folder is changed")(lambda: open(told["program"], "a").write("#"))


@attempt("/proc/1/root")
def _():
    return read("/proc/1/root" + told["home"] + "/secret")


@attempt("the environment of the supervisor")
def _():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for what in ("environ", "cmdline"):
            try:
                text = read(f"/proc/{pid}/{what}")
            except OSError:
                continue
            if told["secret"] in text or "\0up\0" in text:
                return text
    raise PermissionError("it is not there")


@attempt("a signal to the supervisor")
def _():
    for pid in told["pids"]:
        os.kill(pid, signal.SIGCONT)
    return "sent"


@attempt("a trace of the supervisor")
def _():
    libc = ctypes.CDLL(None, use_errno=True)
    for pid in told["pids"]:
        if libc.ptrace(16, pid, 0, 0):  # PTRACE_ATTACH
            raise OSError(ctypes.get_errno(), "ptrace")
    return "traced"


@attempt("a key press at the terminal of the person")
def _():
    import fcntl, termios

    with open("/dev/tty", "w") as tty:
        fcntl.ioctl(tty, termios.TIOCSTI, b"x")


# The network.
attempt("a port of this machine")(lambda: listening(told["listener"]))
attempt("an address of the internet")(lambda: connect(socket.AF_INET, ("1.1.1.1", 443)))
attempt("a question to the DNS")(lambda: socket.getaddrinfo("example.com", 443))
attempt("a datagram")(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53)))
attempt("CONNECT to a host that is not listed")(lambda: tunnel("example.com:443"))
attempt("CONNECT to a port of this machine")(lambda: tunnel("127.0.0.1:%d" % told["listener"][1]))
attempt("CONNECT to this machine by another name of it")(lambda: tunnel("2130706433:%d" % told["listener"][1]))
attempt("CONNECT to an address of the internet")(lambda: tunnel("1.1.1.1:443"))
attempt("CONNECT to a listed host at another port")(lambda: tunnel("%s:22" % told["name"]))
attempt("CONNECT to a listed name that leads to this machine")(lambda: tunnel("%s:%d" % (told["name"], told["listener"][1])))


@attempt("a plain call through the proxy")
def _():
    s = connect(socket.AF_INET, proxy())
    s.sendall(b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % told["listener"][1])
    said = s.recv(4096).decode()
    if " 200 " not in said.split("\n")[0]:
        raise PermissionError(said)
    return said


@attempt("the door itself")
def _():
    args = read("/proc/1/cmdline").split("\0")
    s = connect(socket.AF_UNIX, args[args.index("--door") + 1])
    s.sendall(("127.0.0.1:%d\n" % told["listener"][1]).encode())
    said, rights, _, _ = s.recvmsg(1000, socket.CMSG_SPACE(4))
    if not rights:
        raise PermissionError(said.decode())
    return "a connection"


attempt("an abstract Unix socket")(lambda: connect(socket.AF_UNIX, "\0" + told["abstract"]))
attempt("a Unix socket in /tmp")(lambda: connect(socket.AF_UNIX, told["socket"]))
attempt("the agent of SSH")(lambda: connect(socket.AF_UNIX, os.environ["SSH_AUTH_SOCK"]))
attempt("D-Bus")(lambda: os.environ["DBUS_SESSION_BUS_ADDRESS"])
attempt("a token in the environment")(lambda: next(v for v in os.environ.values() if told["secret"] in v))
attempt("the network of the machine")(lambda: shell("nsenter -t 1 -n true && ip route | grep default"))


@attempt("an approval with a stolen token")
def _():
    call = urllib.request.Request(
        os.environ["SIGNALBOX_SERVER"] + "/ops/agents", b'{"name":"mine"}',
        {"Authorization": "Bearer " + told["token"], "Content-Type": "application/json"})
    try:
        return urllib.request.urlopen(call, timeout=30).read().decode()
    except urllib.error.HTTPError as e:
        raise PermissionError(e.read().decode())


# What would run outside of the sandbox later.
attempt("a hook of git")(lambda: open(".git/hooks/post-checkout", "w").write("#!/bin/sh\n"))
attempt("the settings of git")(lambda: open(".git/config", "a").write("[core]\nfsmonitor = touch owned\n"))
attempt("another folder for the settings of git")(lambda: open(".git/commondir", "w").write("../evil"))
attempt("another .git in the place of it")(lambda: os.rename(".git", ".git-before"))
attempt(".git is removed")(lambda: shell("rm -rf .git 2>&1; test ! -e .git/config"))
attempt("the settings of a submodule")(lambda: open("sub/.git/config", "a").write("[core]\nfsmonitor = touch owned\n"))
attempt("settings of the CLI")(lambda: json.loads(read(told["home"] + "/.config/amp/settings.json"))["planted"])
attempt("a plugin of the CLI")(lambda: open(told["home"] + "/.config/amp/plugins/own.js", "w"))

# The walls.
attempt("a remount")(lambda: shell("mount -o remount,rw,bind .git"))
attempt("an unmount")(lambda: shell("umount signalbox-data"))
attempt("an unmount in a namespace of its own")(lambda: shell("unshare -Um sh -c 'umount signalbox-data && cat signalbox-data/operator.token'"))
attempt("a remount in a namespace of its own")(lambda: shell("unshare -Um sh -c 'mount -o remount,rw,bind .git && touch .git/owned'"))
attempt("a setting of the kernel")(lambda: open("/proc/sys/kernel/core_pattern", "w").write("core"))
attempt("a device")(lambda: os.mknod("disk", 0o600 | 0o060000, os.makedev(254, 0)))
attempt("another root")(lambda: os.chroot("/proc/1/root"))
attempt("a file of the system")(lambda: open("/usr/bin/planted", "w"))

# What is left behind for a CLI that goes on with the session outside.
os.makedirs(told["home"] + "/.local/share/amp/threads", exist_ok=True)
os.symlink(told["home"] + "/.bashrc", told["home"] + "/.local/share/amp/threads/T-2.json")
open(told["home"] + "/.local/share/amp/threads/T-1.json", "w").write("{}")
open(told["home"] + "/.bashrc", "w").write("planted")
open(told["home"] + "/.config/amp/settings.json", "w").write('{"planted-for-later": true}')
open(told["home"] + "/.local/share/amp/secrets.json", "w").write('{"key": "renewed"}')

results = []
for name, fn in attempts:
    try:
        done, how = True, str(fn())[:300]
    except BaseException as e:
        done, how = False, f"{type(e).__name__}: {e}"[:300]
    results.append({"name": name, "done": done, "how": how})

# What it may.
may = {}
for name, fn in {
    "changes its folder": lambda: open("made", "w").write("made") and read("made"),
    "reads its repository": lambda: shell("git log --oneline && git status --short"),
    "calls a listed address": lambda: listening(told["allowed"]),
    "calls a listed address through the proxy": lambda: tunnel("127.0.0.1:%d" % told["allowed"][1]),
    "calls the server": lambda: urllib.request.urlopen(os.environ["SIGNALBOX_SERVER"] + "/health", timeout=30).read().decode(),
    "calls the server with our program": lambda: shell("'%s' version" % told["self"]),
    "uses /tmp": lambda: open("/tmp/own", "w").write("x") and "used",
}.items():
    try:
        may[name] = str(fn())[:300]
    except BaseException as e:
        may[name] = ""
        print(name, e, file=sys.stderr)
json.dump({"attempts": results, "may": may}, open("results.json", "w"))
print(json.dumps({"type": "result", "result": "done"}), flush=True)
