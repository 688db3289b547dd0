// Package facts says what a tool call does: what kind of thing it is, which commands it runs,
// which files it reads, writes and deletes, which hosts it reaches, and whether that can be
// known at all.
//
// It owns the knowledge of tools: what agent CLIs, model providers and well-known MCP servers
// call them and their arguments (tools.go, as data with the versions it was read from), how a
// shell text is taken apart (shell.go), and what common programs do with their operands
// (programs.go). It knows no protocol, no policy and no storage, runs nothing and opens
// nothing: the same Call gives the same Facts, today and when a decision is replayed.
//
// # What always holds
//
// Facts err on one side. A command that may run is listed, also one in a branch that is not
// taken. What cannot be known is Opaque, with the reason; it is never left out. What is
// present and cannot be read is Unreadable: policy blocks that. A text of any size or shape
// ends in bounded time: there are at most maxCommands commands, maxDepth texts inside of one
// another and maxPaths paths, and what goes beyond is Opaque.
//
// # Paths
//
// A path is absolute and clean if the working directory is known. The home folder is written
// as "~" unless the working directory tells where it is. What a shell would put in at run time
// stays as it is written, as in "$BUILD/out". Links cannot be followed from here.
//
// A shell text is parsed with mvdan.cc/sh, and only this package imports it.
package facts
