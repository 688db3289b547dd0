package web

import "html/template"

// icons are drawn on a grid of 20 by 20, with strokes of 1.5. They are part of the page, since the
// security policy lets nothing be fetched from elsewhere. An unknown name draws an empty icon.
var icons = map[string]string{
	"inbox": `<path d="M3 11.5 5.2 4.6A1.5 1.5 0 0 1 6.6 3.5h6.8a1.5 1.5 0 0 1 1.4 1.1L17 11.5v3.5A1.5 1.5 0 ` +
		`0 1 15.5 16.5H4.5A1.5 1.5 0 0 1 3 15z"/><path d="M3 11.5h3.800l1.200 2h4l1.200-2H17"/>`,
	"chart": `<path d="M3.5 16.5h13"/><path d="M5.5 13.5v-3M9 13.5V6M12.5 13.5V8.5M16 13.5V4"/>`,
	"agent": `<rect x="4" y="7" width="12" height="9" rx="2.5"/><path d="M10 7V3.5M8 11v1.5M12 11v1.5M2 ` +
		`10.5v2.5M18 10.5v2.5"/><circle cx="10" cy="3" r=".8"/>`,
	"deck":    `<path d="m10 3 7 3.5-7 3.5-7-3.5z"/><path d="m3 10 7 3.5 7-3.5M3 13.5 10 17l7-3.5"/>`,
	"mail":    `<rect x="2.5" y="4.5" width="15" height="11" rx="2"/><path d="m3 6 7 5 7-5"/>`,
	"task":    `<rect x="3" y="3" width="14" height="14" rx="2.5"/><path d="m6.5 10 2.5 2.5 4.5-5"/>`,
	"session": `<circle cx="10" cy="10" r="7"/><path d="M10 6v4l2.800 1.800"/>`,
	"run": `<path d="M6 4.200v11.600a.5.5 0 0 0 .77.42l8.800-5.800a.5.5 0 0 0 0-.84l-8.800-5.800A.5.5 0 0 0 ` +
		`6 4.200z"/>`,
	"ledger": `<path d="M5 3h9a1.5 1.5 0 0 1 1.5 1.5V17H6a2 2 0 0 1-2-2V4a1 1 0 0 1 1-1z"/><path d="M4 15a2 2 ` +
		`0 0 1 2-2h9.5M7.5 6.5h5M7.5 9.5h3"/>`,
	"send": `<path d="M17 3 9.200 10.800M17 3l-5 14-2.800-6.200L3 8z"/>`,
	"policy": `<path d="M10 2.5 16 5v4.5c0 4-2.600 6.700-6 8-3.400-1.300-6-4-6-8V5z"/><path d="m7.5 10 1.800 ` +
		`1.800 3.200-3.600"/>`,
	"settings": `<path d="M3 6h8M15 6h2M3 14h2M9 14h8"/><circle cx="13" cy="6" r="2"/><circle cx="7" cy="14" r="2"/>`,
	"copy": `<rect x="7" y="7" width="9.5" height="9.5" rx="2"/><path d="M13 7V5.5a2 2 0 0 0-2-2H5.5a2 2 0 0 ` +
		`0-2 2V11a2 2 0 0 0 2 2H7"/>`,
	"check": `<path d="m4.5 10.5 3.700 3.700 7.300-8"/>`,
	"cross": `<path d="m5.5 5.5 9 9M14.5 5.5l-9 9"/>`,
	"edit":  `<path d="m12.5 4.5 3 3L7 16H4v-3z"/><path d="m11 6 3 3"/>`,
	"clock": `<circle cx="10" cy="10" r="7"/><path d="M10 6v4l-2.5 1.5"/>`,
	"people": `<circle cx="7.5" cy="7" r="2.700"/><path d="M2.5 16c.3-2.900 2.300-4.5 5-4.5s4.700 1.600 5 ` +
		`4.5M13 4.600a2.600 2.600 0 0 1 0 4.900M14.5 12c1.800.5 2.800 1.900 3 4"/>`,
	"person": `<circle cx="10" cy="7" r="3"/><path d="M4 16.5c.4-3 2.700-5 6-5s5.600 2 6 5"/>`,
	"search": `<circle cx="9" cy="9" r="5.5"/><path d="m13.200 13.200 3.800 3.800"/>`,
	"keyboard": `<rect x="2" y="5" width="16" height="10" rx="2"/><path d="M5 8.200h.01M8 8.200h.01M11 ` +
		`8.200h.01M14.5 8.200h.01M5 11.5h.01M7.5 11.5h5M15 11.5h.01"/>`,
	"sun": `<circle cx="10" cy="10" r="3.5"/><path d="M10 2v1.5M10 16.5V18M2 10h1.5M16.5 10H18M4.300 ` +
		`4.300l1.100 1.100M14.600 14.600l1.100 1.100M4.300 15.700l1.100-1.100M14.600 5.400l1.100-1.100"/>`,
	"moon": `<path d="M16.5 12.200A7 7 0 0 1 7.800 3.5a7 7 0 1 0 8.700 8.700z"/>`,
	"out":  `<path d="M8 3.5H5A1.5 1.5 0 0 0 3.5 5v10A1.5 1.5 0 0 0 5 16.5h3M12.5 13.5 16.5 10l-4-3.5M16 10H8"/>`,
	"menu": `<path d="M3 5.5h14M3 10h14M3 14.5h14"/>`,
	"back": `<path d="M11.5 4.5 6 10l5.5 5.5"/>`,
	"next": `<path d="M8.5 4.5 14 10l-5.5 5.5"/>`,
	"link": `<path d="M8.5 11.5a3 3 0 0 0 4.300 0l2.700-2.700a3 3 0 0 0-4.300-4.300l-1 1"/><path d="M11.5 ` +
		`8.5a3 3 0 0 0-4.300 0l-2.700 2.700a3 3 0 0 0 4.300 4.300l1-1"/>`,
	"key": `<circle cx="6.5" cy="13.5" r="3"/><path d="m8.700 11.300 7.800-7.800M13.5 6.5l2 2M11.5 8.5l1.5 ` +
		`1.5"/>`,
	"pause": `<path d="M7 4.5v11M13 4.5v11"/>`,
	"plus":  `<path d="M10 4v12M4 10h12"/>`,
	"alert": `<path d="M10 3 17.5 16h-15z"/><path d="M10 8v3.5M10 13.800h.01"/>`,
	"trace": `<circle cx="5" cy="5" r="2"/><circle cx="15" cy="10" r="2"/><circle cx="5" cy="15" r="2"/><path ` +
		`d="M7 5.5c4 .5 2 4 6 4.300M7 14.5c4-.5 2-4 6-4.300"/>`,
	"file": `<path d="M5.5 2.5H11L15.5 7v9a1.5 1.5 0 0 1-1.5 1.5H5.5A1.5 1.5 0 0 1 4 16V4a1.5 1.5 0 0 1 ` +
		`1.5-1.5z"/><path d="M11 2.5V7h4.5"/>`,
	"coin": `<circle cx="10" cy="10" r="7"/><path d="M12.5 7.5c-.6-.8-1.5-1-2.5-1-1.300 0-2.300.6-2.300 ` +
		`1.700 0 2.600 4.800 1 4.800 3.600 0 1.100-1.100 1.700-2.5 1.700-1.100 0-2-.3-2.700-1.100M10 ` +
		`5v10"/>`,
	"live": `<circle cx="10" cy="10" r="2"/><path d="M6 14a5.700 5.700 0 0 1 0-8M14 6a5.700 5.700 0 0 1 0 ` +
		`8M3.700 16.300a9 9 0 0 1 0-12.600M16.300 3.700a9 9 0 0 1 0 12.600"/>`,
	"brand": `<path d="M10 2v16" /><path d="M10 4.5h6.5l-1.800 2.300 1.800 2.200H10"/><circle cx="10" cy="13" ` +
		`r="2.200"/><path d="M6.5 18h7"/>`,
}

// icon draws one. It is hidden from screen readers; the words beside it are read.
func icon(name string) template.HTML {
	return template.HTML(
		`<svg class="icon" viewBox="0 0 20 20" width="20" height="20" aria-hidden="true" focusable="false">` + icons[name] +
			`</svg>`,
	) //nolint:gosec // ours alone
}
