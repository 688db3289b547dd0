package amp

// Unverified is the state of an attachment that no provider of ours has seen, whatever others say about it (MSG-76).
const Unverified = "unverified"

// Attachment is what is known about a file of a message, beside the payload, in which its sender may have
// written anything. Of a file that a provider of ours has, all of it is that provider's record.
type Attachment struct {
	ID          string `json:"id,omitzero"`
	Filename    string `json:"filename"` // safe on every system
	ContentType string `json:"content_type"`
	Size        int64  `json:"size"`
	Digest      string `json:"digest"`
	// URL is where to fetch the file; "" if only the provider that delivered the message has it.
	URL        string `json:"url,omitzero"`
	ScanStatus string `json:"scan_status"` // clean, suspicious, rejected or Unverified
	ScanNote   string `json:"scan_note,omitzero"`
}
