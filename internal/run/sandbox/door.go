package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"signalbox/internal/fault"
)

// door stands outside of a box. Who is inside asks it for connections, and gets those that are allowed.
type door struct {
	listener *net.UnixListener
	// exact are the targets that a person or Signalbox has named as they are: the server, and addresses of this machine.
	// Names are hosts that are looked up, and must not lead to this machine or a private network.
	exact, names []string
	// lookup finds the addresses of a name.
	lookup  func(ctx context.Context, network, name string) ([]netip.Addr, error)
	refused func(text string)

	ctx    context.Context //nolint:containedctx // that of the connections under way; close ends it
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	told   map[string]bool // what was refused
}

const (
	// askTime is how long a question may take, and dialTime a connection.
	askTime, dialTime = 10 * time.Second, 30 * time.Second
	// maxTarget bounds a question, in bytes, maxTold how many refusals are told, and maxAsked how many are asked at once.
	maxTarget, maxTold, maxAsked = 300, 20, 256
	// granted is the answer that a connection comes with; every other is the reason why not.
	granted = "ok\n"
)

// Target reads a host as people list it: HOST or HOST:PORT, with 443 as the port that is not named.
func Target(text string) (target string, err error) {
	wrong := fault.New(fault.InvalidPayload,
		"A host should be a name or an address, with a port if it is not 443, such as api.example.com or 127.0.0.1:4000, and is %.100q.",
		text).About("hosts")
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), "443"
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 || host == "" {
		return "", wrong
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return net.JoinHostPort(host, fmt.Sprint(number)), nil
	}
	for _, r := range host {
		if r != '-' && r != '.' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') {
			return "", wrong
		}
	}
	return net.JoinHostPort(host, fmt.Sprint(number)), nil
}

// isOwn reports whether a target is an address, or this machine: who lists that means it.
func isOwn(target string) bool {
	host, _, _ := net.SplitHostPort(target)
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost"
}

// openDoor begins to answer at a path.
func openDoor(path string, exact, hosts []string, refused func(string)) (*door, error) {
	d := &door{lookup: net.DefaultResolver.LookupNetIP, refused: refused, told: map[string]bool{}}
	for i, list := range [][]string{exact, hosts} {
		for _, one := range list {
			target, err := Target(one)
			if err != nil {
				return nil, err
			}
			if i == 0 || isOwn(target) {
				d.exact = append(d.exact, target)
			} else {
				d.names = append(d.names, target)
			}
		}
	}
	var err error
	if d.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}); err != nil {
		return nil, fault.Wrap(err, fault.StoreReadOnly, "Cannot listen at %s, where the sandbox asks for connections. TMPDIR should "+
			"be a folder with a short name that can be written to.", path)
	}
	d.ctx, d.cancel = context.WithCancel(context.Background()) // until close, when the CLI has ended
	d.wg.Go(d.accept)
	return d, nil
}

// close ends the door. Connections that were given away stay with who has them.
func (d *door) close() {
	d.cancel()
	_ = d.listener.Close()
	d.wg.Wait()
}

// accept answers until the listener is closed.
func (d *door) accept() {
	room := make(chan struct{}, maxAsked)
	for {
		conn, err := d.listener.AcceptUnix()
		if err != nil {
			return
		}
		room <- struct{}{} // each leaves it after a time
		d.wg.Go(func() {
			defer func() { <-room }()
			defer context.AfterFunc(d.ctx, func() { _ = conn.Close() })()
			defer func() { _ = conn.Close() }()
			d.answer(conn)
		})
	}
}

// answer answers one question.
func (d *door) answer(conn *net.UnixConn) {
	_ = conn.SetDeadline(time.Now().Add(askTime))
	line, err := bufio.NewReaderSize(conn, maxTarget).ReadSlice('\n')
	if err != nil {
		return
	}
	asked := strings.TrimSuffix(string(line), "\n")
	out, err := d.dial(asked)
	_ = conn.SetDeadline(time.Now().Add(askTime))
	if err != nil {
		d.tell(asked, err)
		_, _ = conn.Write([]byte(strings.ReplaceAll(err.Error(), "\n", " ") + "\n"))
		return
	}
	defer func() { _ = out.Close() }()
	if raw, err := out.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _, _ = conn.WriteMsgUnix([]byte(granted), syscall.UnixRights(int(fd)), nil) })
	}
}

// errRefused is a target that nobody has listed, or that leads where it must not.
var errRefused = errors.New("the sandbox does not allow it")

// dial makes the connection that is asked for, if it is allowed.
func (d *door) dial(asked string) (*net.TCPConn, error) {
	target, err := Target(asked)
	if err != nil {
		return nil, fmt.Errorf("%w: that is no host", errRefused)
	}
	host, port, _ := net.SplitHostPort(target)
	ctx, cancel := context.WithTimeout(d.ctx, dialTime)
	defer cancel()
	connect := func(to string) (*net.TCPConn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
		if err != nil {
			return nil, fmt.Errorf("%s cannot be reached: %w", target, err)
		}
		tcp, _ := conn.(*net.TCPConn)
		return tcp, nil
	}
	switch {
	case slices.Contains(d.exact, target):
		return connect(target)
	case !slices.Contains(d.names, target):
		return nil, fmt.Errorf("%w: %s is not among its hosts", errRefused, target)
	}
	found, err := d.lookup(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be found: %w", host, err)
	}
	for _, ip := range found {
		if !isPublic(ip) {
			return nil, fmt.Errorf("%w: %s leads to %s, which is not on the internet", errRefused, host, ip.Unmap())
		}
	}
	err = fmt.Errorf("%s has no address", host)
	for _, ip := range found {
		var conn *net.TCPConn
		if conn, err = connect(net.JoinHostPort(ip.Unmap().String(), port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// reserved are networks that are nobody's on the internet, beside those that netip knows.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("2001::/32"),
}

// isPublic reports whether an address is one of the internet.
func isPublic(ip netip.Addr) bool {
	ip = ip.Unmap()
	return ip.IsGlobalUnicast() && !ip.IsPrivate() && ip.Zone() == "" &&
		!slices.ContainsFunc(reserved, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// tell says what was refused, once for each target.
func (d *door) tell(asked string, err error) {
	if !errors.Is(err, errRefused) {
		return
	}
	d.mu.Lock()
	known := d.told[asked] || len(d.told) >= maxTold
	d.told[asked] = true
	d.mu.Unlock()
	if !known {
		d.refused(fmt.Sprintf("The agent wanted to call %.120q. %s", asked, sentence(err)))
	}
}

// sentence is an error as one, with what people can do.
func sentence(err error) string {
	return "It was refused: " + err.Error() + ". --allow-host HOST, or runs.ENGINE.hosts, allows a host."
}
