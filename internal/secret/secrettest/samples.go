// Package secrettest has invented credentials of every shape that package secret finds, for tests that
// look for one where none may be. It knows nothing of how they are found.
package secrettest

import "strings"

// Sample is an invented credential in the text that makes it recognisable. Samples are put together
// from parts, so that no scanner of a code host takes this file for a leak.
type Sample struct {
	Kind          string
	Before        string // what stands before the credential, such as "password="
	Secret, After string
	Line          bool // it is recognised on a line of its own only
}

// Text is the credential with what stands around it.
func (s Sample) Text() string { return s.Before + s.Secret + s.After }

// fill repeats an alphabet up to n characters.
func fill(alphabet string, n int) string { return strings.Repeat(alphabet, n/len(alphabet)+1)[:n] }

// Alnum is n characters: letters and digits.
func Alnum(n int) string { return fill("A1b2C3d4E5f6G7h8I9j0", n) }

// Lower is n characters: lower-case letters and digits.
func Lower(n int) string { return fill("k3m9x2q7w5z8c1v4", n) }

// Hexes is n characters: hexadecimal digits.
func Hexes(n int) string { return fill("0a1b2c3d4e5f6789", n) }

// Upper is n characters: upper-case letters and digits.
func Upper(n int) string { return fill("Q7WE4RT2YU9P", n) }

// Dashed is n characters: letters, digits, hyphens and underscores.
func Dashed(n int) string {
	return fill("aB3d_E6g2-H9j", n-1) + "z"
}

// Block is a private key in PEM.
func Block(label, lineBreak string) string {
	begin, end := "-----BEGIN "+label+"-----", "-----END "+label+"-----"
	return begin + lineBreak + Alnum(64) + lineBreak + Alnum(64) + lineBreak + Alnum(20) + "==" + lineBreak + end
}

// bare makes samples that are recognised wherever they stand.
func bare(kind string, secrets ...string) (all []Sample) {
	for _, s := range secrets {
		all = append(all, Sample{Kind: kind, Secret: s})
	}
	return all
}

// Samples are the shapes that are found.
func Samples() []Sample {
	var all []Sample
	add := func(s ...Sample) { all = append(all, s...) }

	add(bare("signalbox-agent-key", "rs-"+"amp-"+Lower(32), "amp_"+"live_sk_"+Hexes(64))...)
	add(bare("signalbox-handoff-token", "ho"+"f_"+Lower(40))...)
	add(bare("signalbox-operator-token", "sbx_"+"op_"+Lower(40))...)
	add(bare("signalbox-owner-key", "uk_"+Lower(40))...)
	add(bare("signalbox-invite", "inv_"+Lower(32))...)
	add(bare("signing-key", "PRIVATE+"+"KEY+box.example/ledger+"+Hexes(8)+"+"+Alnum(44))...)
	add(bare("webhook-secret", "whsec_"+Alnum(20)+"+/"+Alnum(20)+"=")...)
	add(Sample{Kind: "signalbox-login-code", Before: "http://box.example/ui/login?code=", Secret: Upper(32)})
	add(Sample{Kind: "signalbox-session", Before: "signalbox_session=", Secret: Upper(52)})

	for _, p := range []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_"} {
		add(bare("github-token", p+Alnum(36))...)
	}
	add(bare("github-token", "github"+"_pat_"+Alnum(22)+"_"+Alnum(59))...)
	add(bare("gitlab-token", "glpat"+"-"+Dashed(20), "gldt"+"-"+Dashed(20), "glrt"+"-"+Dashed(20))...)
	add(bare("bitbucket-token", "ATBB"+Alnum(32))...)
	add(bare("atlassian-token", "ATATT3"+Dashed(180))...)
	add(bare("npm-token", "npm_"+Alnum(36))...)
	add(bare("pypi-token", "pypi-"+"AgEIcHlwaS5vcmc"+Dashed(120))...)
	add(bare("rubygems-key", "rubygems_"+Hexes(48))...)
	add(bare("nuget-key", "oy2"+Lower(43))...)
	add(bare("docker-token", "dckr_"+"pat_"+Dashed(27))...)
	add(bare("artifactory-token", "AKCp"+Alnum(69))...)
	add(bare("sourcegraph-token", "sgp_"+Hexes(40))...)

	add(bare("anthropic-key", "sk-"+"ant-api03-"+Dashed(95), "sk-"+"ant-oat01-"+Dashed(95))...)
	add(bare("openai-key", "sk-"+Alnum(48), "sk-"+"proj-"+Dashed(120), "sk-"+"svcacct-"+Dashed(100))...)
	add(bare("openrouter-key", "sk-"+"or-v1-"+Hexes(64))...)
	add(bare("langfuse-key", "sk-"+"lf-0a1b2c3d-4e5f-6789-0a1b-2c3d4e5f6789")...)
	add(bare("huggingface-token", "hf_"+Alnum(34))...)
	add(bare("groq-key", "gsk_"+Alnum(52))...)
	add(bare("replicate-token", "r8_"+Alnum(37))...)
	add(bare("xai-key", "xai-"+Alnum(80))...)
	add(bare("perplexity-key", "pplx-"+Alnum(48))...)
	add(bare("langsmith-key", "lsv2_"+"pt_"+Hexes(32)+"_"+Hexes(10))...)
	add(bare("pinecone-key", "pcsk_"+Alnum(6)+"_"+Alnum(60))...)
	add(bare("nvidia-key", "nvapi-"+Dashed(64))...)
	add(bare("tavily-key", "tvly-"+Alnum(32))...)

	add(bare("aws-access-key", "AKIA"+Upper(16), "ASIA"+Upper(16))...)
	add(bare("aws-bedrock-key", "ABSK"+Alnum(128))...)
	add(Sample{Kind: "aws-secret-key", Before: "aws_secret_access_key = ", Secret: Alnum(20) + "/+" + Alnum(18)})
	add(Sample{Kind: "aws-secret-key", Before: "AWS_SECRET_ACCESS_KEY=", Secret: "/" + Alnum(39)})
	add(Sample{Kind: "aws-session-token", Before: "AWS_SESSION_TOKEN=", Secret: Alnum(300) + "=="})
	add(bare("google-api-key", "AIza"+Dashed(35))...)
	add(bare("google-oauth-token", "ya29."+Dashed(120), "1//0"+Dashed(60))...)
	add(bare("google-client-secret", "GOCSPX-"+Dashed(28))...)
	add(bare("digitalocean-token", "dop_"+"v1_"+Hexes(64), "doo_"+"v1_"+Hexes(64))...)
	add(bare("alibaba-access-key", "LTAI"+Alnum(20))...)
	add(bare("heroku-key", "HRKU-"+Dashed(60))...)
	add(Sample{Kind: "heroku-key", Before: "HEROKU_API_KEY=", Secret: "0a1b2c3d-4e5f-6789-0a1b-2c3d4e5f6789"})
	add(Sample{Kind: "cloudflare-token", Before: "CLOUDFLARE_API_TOKEN=", Secret: Dashed(40)})
	add(bare("cloudflare-origin-key", "v1.0-"+Hexes(24)+"-"+Hexes(146))...)
	add(Sample{Kind: "fastly-token", Before: "FASTLY_API_TOKEN=", Secret: Alnum(32)})
	add(bare("fly-token", "fm2_"+Alnum(120))...)
	add(bare("netlify-token", "nfp_"+Alnum(36))...)
	add(bare("render-key", "rnd_"+Alnum(32))...)
	add(bare("supabase-token", "sbp_"+Hexes(40), "sb_"+"secret_"+Alnum(31))...)
	add(bare("planetscale-token", "pscale_"+"tkn_"+Dashed(43), "pscale_"+"pw_"+Dashed(43))...)
	add(bare("neon-key", "napi_"+Lower(64))...)
	add(bare("atlas-key", "mdb_"+"sa_sk_"+Dashed(40))...)
	add(bare("databricks-token", "dapi"+Hexes(32))...)
	add(bare("pulumi-token", "pul-"+Hexes(40))...)
	add(bare("openshift-token", "sha256~"+Dashed(43))...)
	add(bare("tailscale-key", "tskey-"+"auth-"+Alnum(17)+"-"+Alnum(32))...)
	add(bare("vault-token", "hvs."+Dashed(90), "hvb."+Dashed(130))...)
	add(bare("doppler-token", "dp."+"pt."+Alnum(43), "dp."+"st.prod."+Alnum(43))...)
	add(bare("1password-token", "ops_"+"eyJ"+Alnum(250))...)
	add(bare("age-key", "AGE-SECRET-"+"KEY-1"+Upper(58))...)
	add(bare("terraform-token", Alnum(14)+".atlasv1."+Dashed(67))...)
	add(bare("azure-client-secret", "aB3"+"8Q~"+Dashed(34))...)
	add(Sample{Kind: "azure-storage-key", Before: "AccountName=box;AccountKey=", Secret: Alnum(86) + "==", After: ";X=y"})
	add(Sample{Kind: "azure-sas", Before: "https://box.blob.example/c?sv=2024&sig=", Secret: Alnum(40) + "%2Ba%3D"})
	add(Sample{Kind: "signed-url", Before: "https://s3.example/b?X-Amz-Signature=", Secret: Hexes(64)})

	add(bare("slack-token", "xoxb-"+"1234567890-123456789012-"+Alnum(24), "xoxp-"+"1234567890-"+Hexes(32),
		"xapp-"+"1-A0B1C2D3E4F-1234567890-"+Hexes(64))...)
	add(Sample{
		Kind: "slack-webhook", Before: "https://hooks.slack" + ".com/services/",
		Secret: "T0" + Upper(8) + "/B0" + Upper(8) + "/" + Alnum(24),
	})
	add(bare("telegram-token", "1234567890"+":AA"+Dashed(33))...)
	add(bare("discord-token", "MT"+Alnum(24)+"."+Alnum(6)+"."+Dashed(38))...)
	add(Sample{
		Kind: "discord-webhook", Before: "https://discord" + ".com/api/webhooks/",
		Secret: "123456789012345678/" + Dashed(68),
	})
	add(Sample{
		Kind: "teams-webhook", Before: "https://box.webhook.office" + ".com/webhookb2/",
		Secret: "0a1b2c3d-4e5f@1b2c3d4e-5f67/IncomingWebhook/" + Hexes(32) + "/2c3d4e5f-6789",
	})
	add(bare("sendgrid-key", "SG."+Dashed(22)+"."+Dashed(43))...)
	add(bare("mailgun-key", "key-"+Hexes(32))...)
	add(bare("mailchimp-key", Hexes(32)+"-us12")...)
	add(bare("brevo-key", "xkeysib-"+Hexes(64)+"-"+Alnum(16))...)
	add(bare("resend-key", "re_"+Alnum(8)+"_"+Alnum(24))...)
	add(bare("twilio-key", "SK"+Hexes(32))...)
	add(Sample{Kind: "twilio-token", Before: "TWILIO_AUTH_TOKEN=", Secret: Hexes(32)})

	add(bare("stripe-key", "sk_"+"live_"+Alnum(24), "rk_"+"live_"+Alnum(24), "sk_"+"test_"+Alnum(99))...)
	add(bare("square-token", "sq0atp-"+Dashed(22), "sq0csp-"+Dashed(43), "EAAA"+Dashed(60))...)
	add(bare("shopify-token", "shpat_"+Hexes(32), "shpss_"+Hexes(32))...)

	add(bare("linear-key", "lin_"+"api_"+Alnum(40))...)
	add(bare("notion-key", "ntn_"+Alnum(46), "secret_"+Alnum(43))...)
	add(bare("figma-token", "figd_"+Dashed(40))...)
	add(bare("hubspot-token", "pat-"+"na1-0a1b2c3d-4e5f-6789-0a1b-2c3d4e5f6789")...)
	add(bare("postman-key", "PMAK-"+Hexes(24)+"-"+Hexes(34))...)
	add(bare("newrelic-key", "NRAK-"+Upper(27))...)
	add(bare("sentry-token", "sntrys_"+"eyJ"+Alnum(80)+"_"+Alnum(43), "sntryu_"+Hexes(64))...)
	add(bare("grafana-token", "glsa_"+Alnum(32)+"_"+Hexes(8), "glc_"+Alnum(80)+"=")...)
	add(bare("dynatrace-token", "dt0c01."+Upper(24)+"."+Upper(64))...)
	add(bare("circleci-token", "CCIPAT_"+Alnum(22)+"_"+Hexes(40))...)
	add(bare("buildkite-token", "bkua_"+Hexes(40))...)
	add(bare("contentful-token", "CFPAT-"+Dashed(43))...)

	add(bare("jwt", "eyJ"+Alnum(33)+".eyJ"+Alnum(60)+"."+Dashed(43), "eyJ"+Alnum(50)+".."+Dashed(16)+"."+Dashed(80)+"."+
		Dashed(22))...)
	for _, label := range []string{
		"RSA PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK", "PRIVATE KEY",
		"ENCRYPTED PRIVATE KEY",
	} {
		add(bare("private-key", Block(label, "\n"), Block(label, `\n`))...)
	}
	return append(all, namedSamples()...)
}
