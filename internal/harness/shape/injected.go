package shape

// Injected is the context with which context_perception is answered.
type Injected struct {
	Facts        []Fact   `json:"facts"`
	FileContents []File   `json:"file_contents,omitzero"`
	Knowledge    []string `json:"knowledge,omitzero"`
}

// Fact is a piece of knowledge, where it is from, and how certain it is, from 0 to 1.
type Fact struct {
	Content    string  `json:"content"`
	Source     string  `json:"source"`
	Confidence float64 `json:"confidence"`
}

// File is a snippet of a file, with how well it answers the question.
type File struct {
	Path      string  `json:"path"`
	Snippet   string  `json:"snippet"`
	Relevance float64 `json:"relevance_score"`
}
