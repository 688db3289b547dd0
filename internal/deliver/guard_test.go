package deliver_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
)

// book is a resolver with fixed answers.
type book map[string]string

func (b book) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	var all []netip.Addr
	for text := range strings.FieldsSeq(b[host]) {
		all = append(all, netip.MustParseAddr(text))
	}
	return all, nil
}

func guarded(t *testing.T, b book, allow ...string) *deliver.Outbox {
	t.Helper()
	o, err := deliver.New(deliver.Options{Key: masterKey, Allow: allow, Resolver: b})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestTargetsOutsideOfThePublicInternetAreRefused(t *testing.T) {
	names := book{
		"public.example": "93.184.216.34 2606:2800:220:1::1", "private.example": "10.0.0.1",
		"half.example": "93.184.216.34 192.168.1.1", "empty.example": "",
	}
	o := guarded(t, names)
	for _, target := range []string{
		"https://public.example/hook", "http://public.example:8080/hook?token=x", "https://93.184.216.34/",
		"https://[2606:2800:220:1::1]/",
		"https://[2002:5db8:d822::1]/", "https://[64:ff9b::5db8:d822]/", "https://[::ffff:93.184.216.34]/",
		"https://172.15.0.1/", "https://100.128.0.1/",
	} {
		if err := o.CheckTarget(t.Context(), target); err != nil {
			t.Errorf("%s is refused: %v", target, err)
		}
	}
	for _, target := range []string{
		"", "hooks.example.com", "ftp://public.example/", "file:///etc/passwd", "gopher://public.example", "https://",
		"https:///path", "https://user:hunter2@public.example/",
		"https://user@public.example/", "https://public.example:0/", "https://public.example:99999/",
		"https://public.example:/", "https://public.example/#part", "https://a b/", "https://%zz/",
		"https://127.0.0.1/", "https://127.8.8.8/", "https://[::1]/", "https://0.0.0.0/", "https://[::]/",
		"https://10.1.2.3/", "https://172.16.0.1/", "https://192.168.0.1/",
		"https://169.254.1.1/", "https://169.254.169.254/latest/meta-data", "https://[fd00:ec2::254]/",
		"https://100.100.100.200/", "https://168.63.129.16/", "https://100.64.0.1/",
		"https://224.0.0.1/", "https://255.255.255.255/", "https://240.0.0.1/", "https://198.18.0.1/", "https://192.0.2.1/",
		"https://[fe80::1]/", "https://[fe80::1%25eth0]/",
		"https://[fc00::1]/", "https://[fec0::1]/", "https://[ff02::1]/", "https://[::ffff:127.0.0.1]/",
		"https://[::ffff:a9fe:a9fe]/", "https://[::127.0.0.1]/",
		"https://[64:ff9b::7f00:1]/", "https://[64:ff9b::a9fe:a9fe]/", "https://[64:ff9b:1::1]/", "https://[2002:7f00:1::]/",
		"https://[2002:c0a8:1::1]/", "https://[2001:0:1::1]/", "https://[4000::1]/",
		"https://2130706433/", "https://0x7f000001/", "https://0x7f.1/", "https://0177.0.0.1/", "https://127.1/",
		"https://127.0.0.1./",
		"https://private.example/", "https://half.example/", "https://empty.example/",
		"https://" + strings.Repeat("a", 2000) + ".example/", "https://public.example/\x00",
	} {
		err := o.CheckTarget(t.Context(), target)
		if !fault.Is(err, fault.InvalidTarget) {
			t.Errorf("%.60q: %v", target, err)
			continue
		}
		if text := fault.From(err).Message; strings.Contains(text, "hunter2") || len(text) > 400 {
			t.Errorf("the message is %q", text)
		}
	}
}

func TestTheAllowListNamesHostsAddressesAndNetworks(t *testing.T) {
	names := book{"inside.example": "10.0.0.1", "other.example": "10.0.0.2"}
	for _, c := range []struct {
		allow, target string
		good          bool
	}{
		{"inside.example", "https://inside.example/", true},
		{"INSIDE.example.", "https://Inside.EXAMPLE/", false}, // the resolver here knows lower case only
		{"inside.example", "https://other.example/", false},
		{"10.0.0.2", "https://other.example/", true},
		{"10.0.0.0/24", "https://10.0.0.77/", true},
		{"10.0.0.0/24", "https://[::ffff:10.0.0.77]/", true},
		{"10.0.0.0/24", "https://10.0.1.77/", false},
		{"fd00::/8", "https://[fd12::1]/", true},
		{"127.0.0.1", "https://127.0.0.2/", false},
	} {
		err := guarded(t, names, c.allow).CheckTarget(t.Context(), c.target)
		if (err == nil) != c.good {
			t.Errorf("%s with %s allowed: %v", c.target, c.allow, err)
		}
	}
	for _, wrong := range []string{"", "*.example", "https://inside.example", "10.0.0.0/99", "host:80", "a b"} {
		if _, err := deliver.New(deliver.Options{Key: masterKey, Allow: []string{wrong}}); !fault.Is(err,
			fault.InvalidConfig) {
			t.Errorf("%q on the allow list: %v", wrong, err)
		}
	}
}

func TestSecretsFollowFromTheKeyAndDiffer(t *testing.T) {
	o := guarded(t, nil)
	seen := map[string]string{}
	for _, c := range []struct {
		workspace, receiver string
		generation          int
	}{{"a", "b", 1}, {"a", "b", 2}, {"a", "c", 1}, {"ab", "", 1}, {"a", "b1", 1}, {"", "ab", 1}, {"b", "a", 1}} {
		secret := o.SecretFor(c.workspace, c.receiver, c.generation)
		if secret != o.SecretFor(c.workspace, c.receiver, c.generation) || seen[secret.Reveal()] != "" ||
			secret.String() != "[redacted]" {
			t.Errorf("the secret of %v is not its own", c)
		}
		seen[secret.Reveal()] = "taken"
	}
	if _, err := deliver.New(deliver.Options{Key: []byte("short")}); !fault.Is(err, fault.InvalidConfig) {
		t.Errorf("a short key: %v", err)
	}
}

func TestARegistrationTakesAGoodAddressAndRotatesItsSecret(t *testing.T) {
	o := guarded(t, book{"hooks.example": "8.8.8.8", "inside.example": "10.0.0.1"})
	before := deliver.Registration{URL: "https://old.example/", Generation: 3}
	for _, c := range []struct {
		address string
		rotate  bool
		want    deliver.Registration
	}{
		{"https://hooks.example/a", false, deliver.Registration{URL: "https://hooks.example/a", Generation: 3}},
		{"https://hooks.example/a", true, deliver.Registration{URL: "https://hooks.example/a", Generation: 4}},
		{"", true, deliver.Registration{Generation: 4}},
	} {
		if got, err := o.Register(t.Context(), before, c.address, c.rotate); got != c.want || err != nil {
			t.Errorf("%q: %+v, %v", c.address, got, err)
		}
	}
	got, err := o.Register(t.Context(), before, "https://inside.example/", true)
	if got != before || !fault.Is(err, fault.InvalidTarget) || fault.From(err).Field != "url" {
		t.Errorf("%+v, %v", got, err)
	}
}
