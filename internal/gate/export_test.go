package gate

// Listing is the query of a listing, for looking at how it is answered.
var Listing = listing

// ByID is the query of one gate.
const ByID = selectGate + byID
