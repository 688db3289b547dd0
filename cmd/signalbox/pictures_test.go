package main

import (
	"bytes"
	"context"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"signalbox/internal/testbed"
)

var pictures = flag.String("pictures", "", "the folder that gets the README's pictures; none are kept when empty")

// TestThePicturesOfTheReadme plays the demo and takes the pictures that the README shows,
// which `make screenshots` keeps.
func TestThePicturesOfTheReadme(t *testing.T) {
	path := testbed.Program(t, "chromium")
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
	folder := *pictures
	if folder == "" {
		folder = t.ArtifactDir()
	}
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
		picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		keep(t, filepath.Join(folder, "inbox-"+scheme+".png"), picture)
	}
	film := takeFilm(t, ctx, p, do)
	keep(t, filepath.Join(folder, "approve.gif"), film)
}

// keep writes a picture for everybody.
func keep(t *testing.T, path string, picture []byte) {
	t.Helper()
	if err := os.WriteFile(path, picture, 0o644); err != nil { //nolint:gosec // a picture for everybody
		t.Fatal(err)
	}
}

// takeFilm approves a gate in the browser, as a person would, and returns the pictures of it as one
// animation.
func takeFilm(t *testing.T, ctx context.Context, p *process, do func(...chromedp.Action[chromedp.Void])) []byte {
	t.Helper()
	var frames []image.Image
	shoot := func() {
		t.Helper()
		text, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		frame, err := png.Decode(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, frame)
	}
	light := emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "light"}},
	}
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, light); err != nil {
		t.Fatal(err)
	}
	do(chromedp.EmulateViewport(1100, 700, chromedp.EmulateScale(1)), chromedp.Navigate(p.url+"/ui/inbox?q=newsletter"),
		chromedp.WaitVisible(chromedp.CSS("#approve")), chromedp.WaitVisible(chromedp.CSS("#live.on")))
	shoot()
	do(chromedp.SendKeys(chromedp.CSS("textarea[name=note]"), "Fine, but not before Monday."))
	shoot()
	do(chromedp.Click(chromedp.CSS("#approve")), chromedp.WaitVisible(chromedp.CSS(".flash")))
	shoot()
	return animate(t, frames)
}

// animate puts frames together into a GIF that shows each for two seconds. A page of the dashboard has
// few colours: the 256 that cover most of it are the palette, and others become the nearest of them.
func animate(t *testing.T, frames []image.Image) []byte {
	t.Helper()
	count := map[color.RGBA]int{}
	for _, f := range frames {
		for y := range f.Bounds().Dy() {
			for x := range f.Bounds().Dx() {
				count[color.RGBAModel.Convert(f.At(x, y)).(color.RGBA)]++
			}
		}
	}
	most := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int { return count[b] - count[a] })
	var palette color.Palette
	for _, c := range most[:min(256, len(most))] {
		palette = append(palette, c)
	}
	film := &gif.GIF{}
	for _, f := range frames {
		picture := image.NewPaletted(f.Bounds(), palette)
		draw.Draw(picture, f.Bounds(), f, image.Point{}, draw.Src)
		film.Image, film.Delay = append(film.Image, picture), append(film.Delay, 200)
	}
	var out bytes.Buffer
	if err := gif.EncodeAll(&out, film); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
