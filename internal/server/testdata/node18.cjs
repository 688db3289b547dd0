// The suite's HTTP library takes a global that Debian 12's Node has under another name.
globalThis.File ??= require('node:buffer').File
