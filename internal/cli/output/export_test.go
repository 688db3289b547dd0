package output

// Wrap is wrap, for tests.
var Wrap = wrap
