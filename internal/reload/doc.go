// Package reload is the configuration that is read again while the server runs: by SIGHUP, and by
// `signalbox config reload`. It owns what a reload may put in force and what it says about the rest, the log's level
// and form, and the certificate that is served. It does not know what a setting means: the server reads the
// configuration and puts settings in force.
//
// What always holds:
//
//   - A configuration that a start would refuse changes nothing. The old one stays in force as a whole; the log, the
//     status and doctor say why.
//   - Whoever runs as the server's user can write the file and send the signal, an agent too. So a change of it takes
//     effect only when an operator has confirmed the very bytes of the file, by `signalbox config set` or
//     `signalbox config reload`, which the wall refuses to processes of agents. Until then it is held back. Only what
//     gives nobody power is put in force unconfirmed.
//   - What was put in force, held back or refused is an entry of the ledger, by the names of keys and without values.
package reload
