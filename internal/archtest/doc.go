// Package archtest holds the rules of the architecture as tests: who may import
// whom, which library may appear where, and what every package and file must be
// like. It has no code of its own and imports nothing of ours; a rule that is broken
// fails the tests with its reason.
package archtest
