package secret

// alphabet is a set of characters that the body of a credential is made of.
type alphabet uint8

// The alphabets.
const (
	hexes  alphabet = iota // 0-9a-fA-F
	alnum                  // 0-9a-zA-Z
	upper                  // 0-9A-Z
	word                   // alnum and _
	url64                  // word and -, the alphabet of base64url
	dotted                 // url64 and .
	any64                  // url64 and + / =, any alphabet of base64
	path                   // dotted and + / = % @
	loose                  // what an unquoted value is made of: see value.go
	alphabets
)

// shape is a form of credential that begins with a fixed text.
type shape struct {
	kind     string
	prefixes string   // separated by spaces
	body     alphabet // what follows the prefix
	least    int      // how many characters follow at least: a few less than issued, for copies that were cut
	flags    uint8
}

// The flags of a shape.
const (
	mixed uint8 = 1 << iota // the body has digits among its letters; for prefixes that could begin a name
	exact                   // the body is exactly that long and nothing touches it: not cache-key-…, not base64
	kept                    // the prefix is not secret and stays, such as a host name
)

// Kinds that are found by code instead of a row of the table.
const (
	kindPrivateKey = "private-key"
	kindJWT        = "jwt"
	kindBearer     = "bearer-token"
	kindBasic      = "basic-auth"
	kindURL        = "url-password"
	kindPassword   = "password"
	kindTelegram   = "telegram-token"
	kindDiscord    = "discord-token"
	kindAzure      = "azure-client-secret"
	kindTerraform  = "terraform-token"
	kindMailchimp  = "mailchimp-key"
)

// shapes are the credentials with a prefix of their own. A kind is part of marks in stored text:
// one that was released is never renamed.
var shapes = []shape{
	// Our own: see key.Draw, roster.MakeInvite, ledger.KeyFile, web.newLogin and behalf.HasToken.
	{"signalbox-agent-key", "rs-amp-", alnum, 24, mixed},
	{"signalbox-agent-key", "amp_live_sk_ amp_test_sk_", hexes, 32, 0},
	{"signalbox-operator-token", "sbx_op_", alnum, 24, 0},
	{"signalbox-owner-key", "uk_", alnum, 36, mixed},
	{"signalbox-invite", "inv_", alnum, 32, mixed},
	{"signalbox-handoff-token", "hof_", word, 20, mixed},
	{"signalbox-login-code", "ui/login?code=", alnum, 24, kept},
	{"signing-key", "PRIVATE+KEY+", path, 40, 0},
	{"webhook-secret", "whsec_", any64, 20, 0},

	// Code hosts and registries.
	{"github-token", "ghp_ gho_ ghu_ ghs_ ghr_", alnum, 30, 0},
	{"github-token", "github_pat_", word, 30, 0},
	{"gitlab-token", "glpat- gldt- glrt- glrtr- glcbt- glptt- glft- glimt- glagent- gloas- glsoat-", dotted, 18, 0},
	{"bitbucket-token", "ATBB", alnum, 28, mixed},
	{"atlassian-token", "ATATT3 ATCTT3", any64, 60, 0},
	{"npm-token", "npm_", alnum, 30, mixed},
	{"pypi-token", "pypi-AgE", url64, 30, 0},
	{"rubygems-key", "rubygems_", hexes, 40, 0},
	{"nuget-key", "oy2", alnum, 43, mixed | exact},
	{"docker-token", "dckr_pat_ dckr_oat_", url64, 20, 0},
	{"artifactory-token", "AKCp cmVmdGtuO", alnum, 50, mixed},
	{"sourcegraph-token", "sgp_ slk_", word, 38, mixed},

	// Models.
	{"anthropic-key", "sk-ant-", url64, 20, 0},
	{"openai-key", "sk-proj- sk-svcacct- sk-admin- sk-None-", url64, 20, mixed},
	{"openrouter-key", "sk-or-v1- sk-or-", alnum, 32, mixed},
	{"langfuse-key", "sk-lf-", url64, 30, mixed},
	{"openai-key", "sk-", alnum, 20, mixed},
	{"huggingface-token", "hf_ api_org_", alnum, 30, mixed},
	{"groq-key", "gsk_", alnum, 40, mixed},
	{"replicate-token", "r8_", alnum, 34, mixed},
	{"xai-key", "xai-", alnum, 60, mixed},
	{"perplexity-key", "pplx-", alnum, 40, mixed},
	{"langsmith-key", "lsv2_pt_ lsv2_sk_", word, 36, 0},
	{"pinecone-key", "pcsk_", word, 40, mixed},
	{"nvidia-key", "nvapi-", url64, 50, 0},
	{"tavily-key", "tvly-", url64, 24, mixed},

	// Clouds.
	{"aws-access-key", "AKIA ASIA ABIA ACCA", upper, 16, exact},
	{"aws-bedrock-key", "ABSK bedrock-api-key-", any64, 90, mixed},
	{"google-api-key", "AIza", url64, 30, 0},
	{"google-oauth-token", "ya29. 1//0", dotted, 24, mixed},
	{"google-client-secret", "GOCSPX-", url64, 20, 0},
	{"digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", hexes, 40, 0},
	{"alibaba-access-key", "LTAI", alnum, 16, mixed},
	{"heroku-key", "HRKU-", url64, 32, 0},
	{"cloudflare-token", "cfut_ cfat_ cfk_", word, 36, mixed},
	{"cloudflare-origin-key", "v1.0-", url64, 120, mixed},
	{"fly-token", "fo1_ fm1_ fm1r_ fm1a_ fm2_", any64, 40, mixed},
	{"netlify-token", "nfp_", alnum, 36, mixed},
	{"render-key", "rnd_", alnum, 28, mixed},
	{"supabase-token", "sbp_ sb_secret_", word, 30, mixed},
	{"planetscale-token", "pscale_tkn_ pscale_pw_ pscale_oauth_", dotted, 30, 0},
	{"neon-key", "napi_", alnum, 50, mixed},
	{"atlas-key", "mdb_sa_sk_", url64, 36, 0},
	{"databricks-token", "dapi", hexes, 32, mixed | exact},
	{"pulumi-token", "pul-", hexes, 40, 0},
	{"openshift-token", "sha256~", url64, 40, 0},
	{"tailscale-key", "tskey-", url64, 20, mixed},
	{"vault-token", "hvs. hvb. hvr.", url64, 24, 0},
	{"doppler-token", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", dotted, 36, 0},
	{"1password-token", "ops_eyJ", any64, 100, 0},
	{"age-key", "AGE-SECRET-KEY-1 AGE-SECRET-KEY-PQ-1", alnum, 50, 0},

	// Chats and mail.
	{"slack-token", "xoxb- xoxp- xoxa- xoxr- xoxs- xoxo- xoxc- xoxe- xoxe.xoxp- xoxe.xoxb- xapp-", url64, 16, mixed},
	{"slack-token", "xoxd-", path, 16, mixed},
	{"slack-webhook", "hooks.slack.com/services/ hooks.slack.com/workflows/ hooks.slack.com/triggers/", path, 20, kept},
	{"discord-webhook", "discord.com/api/webhooks/ discordapp.com/api/webhooks/", path, 40, kept},
	{"teams-webhook", "webhook.office.com/webhookb2/", path, 60, kept},
	{"sendgrid-key", "SG.", dotted, 40, mixed},
	{"mailgun-key", "key-", hexes, 32, mixed | exact},
	{"brevo-key", "xkeysib- xsmtpsib-", url64, 60, 0},
	{"resend-key", "re_", word, 24, mixed},
	{"twilio-key", "SK", hexes, 32, mixed | exact},

	// Payments and shops.
	{"stripe-key", "sk_live_ sk_test_ rk_live_ rk_test_ sk_org_live_", alnum, 16, 0},
	{"square-token", "sq0atp- sq0csp- sq0idp-", url64, 20, 0},
	{"square-token", "EAAA", url64, 60, mixed | exact},
	{"shopify-token", "shpat_ shpca_ shppa_ shpss_", alnum, 20, mixed},

	// Work and watching.
	{"linear-key", "lin_api_ lin_oauth_", alnum, 30, 0},
	{"notion-key", "ntn_ secret_", alnum, 40, mixed},
	{"figma-token", "figd_ figo_", url64, 36, mixed},
	{"hubspot-token", "pat-na1- pat-na2- pat-eu1-", url64, 30, mixed},
	{"postman-key", "PMAK-", url64, 40, 0},
	{"newrelic-key", "NRAK- NRII- NRIQ-", alnum, 24, mixed},
	{"sentry-token", "sntrys_ sntryu_ sntrya_", any64, 40, 0},
	{"grafana-token", "glsa_ glc_ eyJrIjoi", any64, 32, mixed},
	{"dynatrace-token", "dt0c01. dt0s01. dt0s16.", dotted, 60, 0},
	{"circleci-token", "CCIPAT_", word, 36, mixed},
	{"buildkite-token", "bkua_", alnum, 36, mixed},
	{"contentful-token", "CFPAT-", url64, 36, 0},
}
