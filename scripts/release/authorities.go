package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"slices"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// authorities are the certificates that the image trusts, as programs read them: Mozilla's list, from a module that
// go.sum pins. A bundle that is copied from the machine that builds would differ from one machine to the next, and
// nobody could tell why. The program does not contain them, since reading them would cost every start of it, and there
// are thousands of starts of hooks a day. An organisation's own authorities are mounted in the place of this file.
//
// A certificate that Mozilla trusts under conditions is left out: a file cannot say the conditions.
func authorities() ([]byte, error) {
	var all [][]byte
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			all = append(all, root.Certificate)
		}
	}
	if len(all) < 50 {
		return nil, fmt.Errorf("golang.org/x/crypto/x509roots has %d certificates, which cannot be all", len(all))
	}
	slices.SortFunc(all, bytes.Compare)
	var out bytes.Buffer
	for _, one := range all {
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: one}); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
