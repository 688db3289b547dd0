package main

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

var pictures = flag.String("pictures", "", "the folder that gets the README's pictures; none are kept when empty")

// TestThePicturesOfTheReadme plays the demo and takes the pictures that the README shows,
// which `make screenshots` keeps.
func TestThePicturesOfTheReadme(t *testing.T) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("pictures take Debian's package chromium: %v", err)
	}
	p := up(t, filepath.Join(t.TempDir(), "data"))
	mustRun(t, p.dir, "demo", "--once")
	login := strings.TrimSpace(mustRun(t, p.dir, "login"))

	allocator, cancel := chromedp.NewExecAllocator(context.Background(),
		append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.ExecPath(path))...)
	defer cancel()
	ctx, end := chromedp.NewContext(allocator)
	defer end()
	ctx, stop := context.WithTimeout(ctx, 60*time.Second)
	defer stop()
	do := func(steps ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		if err := chromedp.Do(ctx, steps...); err != nil {
			t.Fatal(err)
		}
	}
	do(chromedp.EmulateViewport(1280, 800, chromedp.EmulateScale(1.5)), chromedp.Navigate(login),
		chromedp.Click(chromedp.CSS("form[action='/ui/login/code'] button")), chromedp.WaitVisible(chromedp.CSS("#approve")))
	for _, scheme := range []string{"light", "dark"} {
		if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia,
			emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{
				Name:  "prefers-color-scheme",
				Value: scheme,
			}}}); err != nil {
			t.Fatal(err)
		}
		do(chromedp.Navigate(p.url+"/ui/inbox?q=price"), chromedp.WaitVisible(chromedp.CSS("#approve")))
		gate, err := chromedp.Run(ctx, chromedp.Evaluate[string]("location.pathname"))
		if err != nil {
			t.Fatal(err)
		}
		do(chromedp.Navigate(p.url+gate), chromedp.WaitVisible(chromedp.CSS("#live.on")))
		png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		folder := *pictures
		if folder == "" {
			folder = t.ArtifactDir()
		}
		if err := os.WriteFile(filepath.Join(folder, "inbox-"+scheme+".png"), png,
			0o644); err != nil { //nolint:gosec // a picture for everybody
			t.Fatal(err)
		}
	}
}
