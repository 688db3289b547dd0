package secret

import "strings"

// trust says how much a value must look like a credential before its name is believed.
type trust uint8

// The degrees of trust, and the names that need a parser of their own.
const (
	asPassword  trust = iota // people choose passwords: six characters with a digit or a symbol will do
	asToken                  // machines make tokens: eight characters, letters and digits in disorder
	asBasic                  // base64 of user:password
	asSignature              // a signature of a URL: at least 32 characters
	asHeader                 // the value of an Authorization header
	asCookies                // the value of a Cookie or Set-Cookie header
	asNothing                // the name only looks like that of a credential
)

// name is a row of the table of names. A name matches if it ends like the row, whatever its case
// and whether its words are joined by -, _, . or a capital.
type name struct {
	ending string
	kind   string
	trust  trust
	whole  bool // the ending is one or more whole words: DB_PASS, and not bypass
}

// names are what values are called that are credentials. The first row that matches decides, so
// the longer endings stand first.
var names = []name{
	// Names that end like a credential's and are none: cursors of lists, and the working folder.
	{"pagetoken", "", asNothing, false},
	{"nexttoken", "", asNothing, false},
	{"continuationtoken", "", asNothing, false},
	{"synctoken", "", asNothing, false},
	{"resumetoken", "", asNothing, false},
	{"cancellationtoken", "", asNothing, false},
	{"oldpwd", "", asNothing, false},

	// Credentials that have no form of their own and are known by their name only.
	{"secretaccesskey", "aws-secret-key", asToken, false},
	{"awssecretkey", "aws-secret-key", asToken, false},
	{"awssecret", "aws-secret-key", asToken, false},
	{"awssessiontoken", "aws-session-token", asToken, false},
	{"amzsecuritytoken", "aws-session-token", asToken, false},
	{"amzsignature", "signed-url", asSignature, false},
	{"googsignature", "signed-url", asSignature, false},
	{"sig", "azure-sas", asSignature, true},
	{"accountkey", "azure-storage-key", asToken, false},
	{"sharedaccesskey", "azure-storage-key", asToken, false},
	{"azureclientsecret", kindAzure, asToken, false},
	{"herokuapikey", "heroku-key", asToken, false},
	{"cloudflareapitoken", "cloudflare-token", asToken, false},
	{"cloudflareapikey", "cloudflare-token", asToken, false},
	{"cfapitoken", "cloudflare-token", asToken, false},
	{"fastlyapitoken", "fastly-token", asToken, false},
	{"fastlyapikey", "fastly-token", asToken, false},
	{"fastlykey", "fastly-token", asToken, false},
	{"twilioauthtoken", "twilio-token", asToken, false},
	{"mailgunapikey", "mailgun-key", asToken, false},
	{"ddapikey", "datadog-key", asToken, false},
	{"ddappkey", "datadog-key", asToken, false},
	{"datadogapikey", "datadog-key", asToken, false},
	{"signalboxsession", "signalbox-session", asToken, false},
	{"webhooksecret", "webhook-secret", asPassword, false},
	{"signingsecret", "webhook-secret", asPassword, false},

	// Anything else that says it is one.
	{"password", kindPassword, asPassword, false},
	{"passwords", kindPassword, asPassword, false},
	{"passwd", kindPassword, asPassword, false},
	{"passphrase", kindPassword, asPassword, false},
	{"passcode", kindPassword, asPassword, false},
	{"storepass", kindPassword, asPassword, false},
	{"keypass", kindPassword, asPassword, false},
	{"passin", kindPassword, asPassword, false},
	{"passout", kindPassword, asPassword, false},
	{"pwd", kindPassword, asPassword, false},
	{"pass", kindPassword, asPassword, true},
	{"clientsecret", "client-secret", asPassword, false},
	{"secret", "secret", asPassword, false},
	{"secrets", "secret", asPassword, false},
	{"apikey", "api-key", asToken, false},
	{"apikeys", "api-key", asToken, false},
	{"appkey", "api-key", asToken, false},
	{"subscriptionkey", "api-key", asToken, false},
	{"functionskey", "api-key", asToken, false},
	{"accesskey", "access-key", asToken, false},
	{"authkey", "access-key", asToken, false},
	{"sharedkey", "access-key", asToken, false},
	{"masterkey", "access-key", asToken, false},
	{"servicekey", "access-key", asToken, false},
	{"rolekey", "access-key", asToken, false},
	{"storagekey", "access-key", asToken, false},
	{"secretkey", "secret-key", asToken, false},
	{"secretkeybase", "secret-key", asToken, false},
	{"signingkey", "secret-key", asToken, false},
	{"encryptionkey", "secret-key", asToken, false},
	{"hmackey", "secret-key", asToken, false},
	{"privatekey", kindPrivateKey, asToken, false},
	{"keydata", kindPrivateKey, asToken, false}, // client-key-data of a kubeconfig
	{"authtoken", "token", asToken, false},
	{"token", "token", asToken, false},
	{"authorization", "authorization", asHeader, false},
	{"auth", kindBasic, asBasic, true},
	{"credential", "credentials", asToken, false},
	{"credentials", "credentials", asToken, false},
	{"cookie", "cookie", asCookies, false},
	{"cookies", "cookie", asCookies, false},
}

// byLastLetters has the rows for the last two letters of a name.
var byLastLetters = func() (rows [32 * 32][]*name) {
	for i := range names {
		at := lastLetters(names[i].ending)
		rows[at] = append(rows[at], &names[i])
	}
	return rows
}()

// lastLetters are five bits of each of the last two letters of a name, in either case, or 0.
func lastLetters(called string) int {
	n := len(called)
	if n < 2 || !isLetter(called[n-1]) {
		return 0
	}
	return int(called[n-2]&31)<<5 | int(called[n-1]&31)
}

// lookUp is the row for a name, nil if the name says nothing.
func lookUp(called string) *name {
	if called == "PWD" {
		return nil
	}
	for _, row := range byLastLetters[lastLetters(called)] {
		if row.matches(called) {
			if row.trust == asNothing {
				return nil
			}
			return row
		}
	}
	return nil
}

// matches compares from the end, skipping what joins words.
func (n *name) matches(called string) bool {
	i := len(called)
	for j := len(n.ending) - 1; j >= 0; j-- {
		i--
		for i >= 0 && isJoint(called[i]) {
			i--
		}
		if i < 0 || called[i]|0x20 != n.ending[j] {
			return false
		}
	}
	if !n.whole || i == 0 || !isLetter(called[i-1]) {
		return true
	}
	// userPass is two words; bypass and BYPASS are one.
	return isUpper(called[i]) && !isUpper(called[i-1])
}

// isJoint reports whether a character joins the words of a name.
func isJoint(c byte) bool { return c == '_' || c == '-' || c == '.' || c == ' ' }

// isVariable reports whether a name is written as variables of the environment are.
func isVariable(called string) bool {
	return strings.Trim(called, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// program is a command that takes a password in a short flag.
type program struct {
	called   string
	flags    string
	attached bool // -pPASSWORD
	apart    bool // -p PASSWORD
	pair     bool // the value is user:password
}

// programs are those that agents run most. Long flags, such as --password, need no row.
var programs = []program{
	{"curl", "uU", true, true, true},
	{"mysql", "p", true, false, false},
	{"mysqldump", "p", true, false, false},
	{"mysqladmin", "p", true, false, false},
	{"mysqlimport", "p", true, false, false},
	{"mariadb", "p", true, false, false},
	{"sshpass", "p", true, true, false},
	{"mongo", "p", false, true, false},
	{"mongosh", "p", false, true, false},
	{"mongodump", "p", false, true, false},
	{"mongorestore", "p", false, true, false},
	{"redis-cli", "a", false, true, false},
	{"sqlcmd", "P", false, true, false},
	{"ldapsearch", "w", false, true, false},
	{"ldapmodify", "w", false, true, false},
	{"ldapadd", "w", false, true, false},
	{"login", "p", false, true, false}, // docker login, podman login, az login
}
