package run

// CompleteLost is what Run does now and then.
var CompleteLost = (*Runs).completeLost
