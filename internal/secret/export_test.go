package secret

// KnownKinds are the kinds that there are, for a test that each has a sample.
var KnownKinds = knownKinds
