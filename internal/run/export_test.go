package run

// CompleteLost is what Run does now and then.
var CompleteLost = (*Runs).completeLost

// MeterAgain counts what the proxy has carried, as a node does that takes over.
var MeterAgain = (*Runs).meterCalls
