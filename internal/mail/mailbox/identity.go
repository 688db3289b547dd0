package mailbox

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
)

// Box is an agent's folder, as read by Open or made by Init. It is a snapshot: methods that change
// the folder take its lock and read it again first. A Box is for one goroutine.
type Box struct {
	Dir           string
	Name          string
	ID            string
	Tenant        string
	Address       string // its first address, "" before it is registered
	Provider      string // the provider of that address
	CreatedAt     string
	Registrations []Registration // the first is the primary one

	// Within is the token of the handoff in whose process messages are sent, for the provider at an address; "" for none.
	// nil is none for all.
	Within func(address string) string

	made bool // by Init, and not by another client, whose messages may be unsigned or have no nonce
	key  ed25519.PrivateKey
	next ed25519.PrivateKey // the new key during an unfinished rotation, else nil
	now  func() time.Time
}

// config is the part of config.json that we read, in the spelling of the documents or of the bash
// clients.
type config struct {
	object
	Agent struct {
		Name, ID, Tenant, Address, CreatedAt string
	}
	Provider string
}

// readConfig reads config.json of a folder.
func readConfig(dir string) (config, error) {
	o, err := readObject(filepath.Join(dir, configFile))
	if err != nil {
		return config{}, err
	}
	c := config{object: o, Provider: o.part("provider").text("domain")}
	agent := o.part("agent")
	c.Agent.Name, c.Agent.ID = agent.text("name"), agent.text("id")
	c.Agent.Tenant, c.Agent.Address = agent.text("tenant"), agent.text("address")
	if c.Agent.CreatedAt = agent.text("createdAt", "created_at"); c.Agent.CreatedAt == "" {
		c.Agent.CreatedAt = o.text("created_at")
	}
	return c, nil
}

// ourName is what config.json says of a folder that Init made.
const ourName = "signalbox"

// Init makes an agent's folder with a new pair of keys. It never replaces one that exists, not even
// keys without a configuration: a lost key is a lost identity.
func Init(w Where, name, tenant string) (*Box, error) {
	name = strings.ToLower(name)
	if err := checkName(name); err != nil {
		return nil, err
	}
	if w.Dir == "" {
		w.Agent = name
	}
	unlock, err := lock(cmp.Or(w.Dir, w.Root))
	if err != nil {
		return nil, err
	}
	defer unlock()
	dir, err := w.find()
	if err != nil {
		return nil, err
	}
	if dir != "" {
		return nil, fault.New(fault.AlreadyExists,
			"There is an agent in %s already. Use it, choose another name, or get it new keys with `signalbox mail rotate`.",
			dir)
	}
	b := &Box{Name: name, ID: newAgentID(), Tenant: tenant, made: true, now: time.Now}
	b.CreatedAt = b.stamp()
	if b.Dir, err = w.newFolder(name, b.ID); err != nil {
		return nil, err
	}
	// Keys without a configuration are from a failed copy or a damaged folder, and may be registered.
	if _, err := os.Stat(b.keyFile(privateFile)); err == nil {
		return nil, fault.New(fault.AlreadyExists, "%s has keys and no %s. Move the keys away, or restore the file.",
			b.Dir, configFile)
	}
	if _, b.key, err = ed25519.GenerateKey(nil); err != nil {
		return nil, err
	}
	if err := b.writeKey(privateFile, b.key); err != nil {
		return nil, err
	}
	// All of them, since the bash clients expect them.
	for _, folder := range []string{"registrations", "messages/inbox", "messages/sent", "attachments"} {
		if err := os.MkdirAll(filepath.Join(b.Dir, filepath.FromSlash(folder)), 0o700); err != nil {
			return nil, unwritable(err, b.Dir)
		}
	}
	return b, b.save()
}

// Open reads an agent's folder. It takes no lock and changes nothing.
func Open(w Where) (*Box, error) {
	dir, err := w.find()
	if err != nil {
		return nil, err
	}
	if dir == "" {
		return nil, fault.New(fault.NotFound,
			"There is no agent's folder here. Make one with `signalbox mail register NAME`.")
	}
	c, err := readConfig(dir)
	if err != nil {
		return nil, unreadable(err, filepath.Join(dir, configFile))
	}
	b := &Box{
		Dir: dir, Name: c.Agent.Name, ID: c.Agent.ID, Tenant: c.Agent.Tenant, Address: c.Agent.Address,
		Provider: c.Provider, CreatedAt: c.Agent.CreatedAt, made: c.text("client") == ourName, now: time.Now,
	}
	// The name is sent to providers, and other clients write the file.
	if err := checkName(b.Name); err != nil {
		return nil, unreadable(err, filepath.Join(dir, configFile))
	}
	if b.key, err = b.readKey(privateFile); err != nil {
		return nil, unreadable(err, b.keyFile(privateFile))
	}
	// An interrupted rotation; see keyFor.
	if b.next, err = b.readKey(nextFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, unreadable(err, b.keyFile(nextFile))
	}
	return b, b.readRegistrations()
}

// Fingerprint is the fingerprint of the agent's public key.
func (b *Box) Fingerprint() string { return fingerprint(b.key) }

func fingerprint(key ed25519.PrivateKey) string { return roster.Fingerprint(public(key)) }

// public is the public half, which an Ed25519 private key ends with.
func public(key ed25519.PrivateKey) ed25519.PublicKey {
	return ed25519.PublicKey(key[ed25519.SeedSize:])
}

// publicPEM is the public key as it is sent, without a line feed at the end, as the bash clients
// send it.
func publicPEM(key ed25519.PrivateKey) string {
	return strings.TrimSpace(roster.EncodePublicKey(public(key)))
}

// stamp is the time of now, as the protocol writes it.
func (b *Box) stamp() string { return amp.Stamp(b.now()) }

const (
	privateFile = "private.pem"
	publicFile  = "public.pem"
	nextFile    = "next.pem" // only ours: the key of an unfinished rotation
)

// keyFile is the path of a key.
func (b *Box) keyFile(name string) string { return filepath.Join(b.Dir, "keys", name) }

// readKey reads a private key. Errors never contain any of its text.
func (b *Box) readKey(name string) (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(b.keyFile(name))
	if err != nil {
		return nil, err
	}
	// PKCS #8, as OpenSSL writes Ed25519 keys.
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("it is not PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("it is not a private key in PKCS #8") // never show what is in it
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("it is not an Ed25519 key")
	}
	return key, nil
}

// writeKey writes a private key, readable by its owner only, and beside the one in use its public half.
func (b *Box) writeKey(name string, key ed25519.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writeFile(b.keyFile(name), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		0o600); err != nil {
		return err
	}
	if name != privateFile {
		return nil
	}
	return writeFile(b.keyFile(publicFile), []byte(publicPEM(key)+"\n"), 0o644)
}

// save writes config.json and IDENTITY.md. config.json has the members of the bash clients and of
// the documents, and keeps those that it does not know.
func (b *Box) save() error {
	path := filepath.Join(b.Dir, configFile)
	o, err := readObject(path)
	if errors.Is(err, fs.ErrNotExist) {
		o, err = object{}, nil
	}
	if err != nil {
		return unreadable(err, path)
	}
	// The version of the file's form that the bash clients write.
	o.set("1.1", "version")
	agent := o.part("agent")
	for name, value := range map[string]string{
		"name": b.Name, "id": b.ID, "tenant": b.Tenant, "address": b.Address,
		"fingerprint": b.Fingerprint(), "createdAt": b.CreatedAt,
	} {
		agent.set(value, name)
	}
	o.set(agent, "agent")
	o.set(map[string]string{
		"algorithm": "Ed25519", "private_key_path": "keys/" + privateFile,
		"public_key_path": "keys/" + publicFile,
	}, "keys")
	o.set(b.CreatedAt, "created_at")
	if b.made {
		o.set(ourName, "client")
	}
	if b.Provider != "" {
		provider := o.part("provider")
		provider.set(b.Provider, "domain")
		o.set(provider, "provider")
	}
	if err := writeJSON(path, o, 0o644); err != nil {
		return err
	}
	return writeFile(filepath.Join(b.Dir, "IDENTITY.md"), b.identityPage(), 0o644)
}

// identityPage is IDENTITY.md: who the agent is, for a model that lost its context. Its headings
// are those that the bash clients write.
func (b *Box) identityPage() []byte {
	var p bytes.Buffer
	line := func(texts ...string) { p.WriteString(strings.Join(texts, "") + "\n") }
	line("# Agent Messaging Protocol (AMP) Identity\n")
	line("| Field | Value |\n|---|---|")
	line("| Name | ", b.Name, " |")
	line("| Tenant | ", b.Tenant, " |")
	line("| Fingerprint | `", b.Fingerprint(), "` |")
	line("| Last Updated | ", b.stamp(), " |")
	line("\n## My Addresses\n\n| Provider | Address | Type |\n|---|---|---|")
	for i := range b.Registrations {
		kind := "External"
		if i == 0 {
			kind = "Primary"
		}
		line("| ", b.Registrations[i].Provider, " | `", b.Registrations[i].Address, "` | ", kind, " |")
	}
	line("\n## Files Location\n\n| What | Where |\n|---|---|")
	for _, f := range [][2]string{
		{"Identity", configFile},
		{"Private key (never share it)", "keys/" + privateFile},
		{"Public key", "keys/" + publicFile},
		{"Registrations", "registrations/"},
		{"Inbox", "messages/inbox/"},
		{"Sent", "messages/sent/"},
	} {
		line("| ", f[0], " | `", filepath.Join(b.Dir, filepath.FromSlash(f[1])), "` |")
	}
	line("\n## Quick Commands\n\n```\nsignalbox mail fetch\nsignalbox mail inbox\nsignalbox mail read ID\n" +
		"signalbox mail reply ID \"text\"\nsignalbox mail send ADDRESS \"subject\" \"text\"\n```")
	return p.Bytes()
}
