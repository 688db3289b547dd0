package client

import "time"

// Hurry makes every pause short.
func Hurry(c *Client) *Client {
	c.firstPause, c.longestPause = time.Millisecond, 20*time.Millisecond
	return c
}
