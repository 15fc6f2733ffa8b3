package ambient

// canary stands for each value. It is in no output.
const canary = "canary5e1f0b77c2a94d"

// sample is a file as its tool writes it.
type sample struct {
	text  string
	names []string // of the findings, in order
	rest  string   // what Remove of the first leaves; "" if it is not removable
}

// samples has every file of places.txt.
var samples = map[string]sample{
	".aws/credentials": {"[default]\naws_access_key_id = AKIAEXAMPLE\naws_secret_access_key = " + canary + "\n\n[work]\naws_secret_access_key=" + canary + "\naws_session_token=" + canary + "\n",
		[]string{"aws:default", "aws:work", "aws:work-2"}, "[default]\naws_access_key_id = AKIAEXAMPLE\n\n[work]\naws_secret_access_key=" + canary + "\naws_session_token=" + canary + "\n"},
	".aws/config":                 {"[profile dev]\nregion = eu-central-1\naws_secret_access_key = " + canary + "\n", []string{"aws:dev"}, "[profile dev]\nregion = eu-central-1\n"},
	".aws/sso/cache/*.json":       {`{"startUrl":"https://x.awsapps.com/start","accessToken":"` + canary + `","refreshToken":"` + canary + `","clientSecret":"` + canary + `"}`, []string{"aws-sso", "aws-sso-2", "aws-sso-3"}, ""},
	".aws/cli/cache/*.json":       {`{"Credentials":{"AccessKeyId":"ASIA","SecretAccessKey":"` + canary + `","SessionToken":"` + canary + `"}}`, []string{"aws-cli:Credentials", "aws-cli:Credentials-2"}, ""},
	".config/gh/hosts.yml":        {"github.com:\n    users:\n        ada:\n            oauth_token: " + canary + "\n    oauth_token: " + canary + "\n    user: ada\nghe.example.com:\n    oauth_token: " + canary + "\n", []string{"github:github.com", "github:github.com-2", "github:ghe.example.com"}, ""},
	".config/glab-cli/config.yml": {"git_protocol: ssh\nhosts:\n    gitlab.com:\n        token: " + canary + "\n        api_host: gitlab.com\n", []string{"gitlab:gitlab.com"}, ""},
	".kube/config": {"apiVersion: v1\nclusters:\n- cluster:\n    server: https://k:6443\n  name: c\nusers:\n- name: admin\n  user:\n    client-certificate-data: QUJD\n    client-key-data: " + canary + "\n- name: bot\n  user:\n    token: " + canary + "\n",
		[]string{"kube:admin", "kube:bot"}, ""},
	".netrc":                       {"machine api.example.com login ada password " + canary + "\nmachine b.example.com\n  login x\n  password " + canary + "\n", []string{"netrc:api.example.com", "netrc:b.example.com"}, ""},
	".git-credentials":             {"https://ada:" + canary + "@github.com\nhttps://" + canary + "@gitlab.example.com/x\nhttps://" + canary + ":x-oauth-basic@c.example.com\n", []string{"git:github.com", "git:gitlab.example.com", "git:c.example.com"}, "https://" + canary + "@gitlab.example.com/x\nhttps://" + canary + ":x-oauth-basic@c.example.com\n"},
	".config/git/credentials":      {"https://ada:" + canary + "@git.example.com\n", []string{"git:git.example.com"}, "\x00"},
	".docker/config.json":          {`{"auths":{"https://index.docker.io/v1/":{"auth":"` + canary + `"},"ghcr.io":{"identitytoken":"` + canary + `"}},"credsStore":"pass"}`, []string{"docker:ghcr.io", "docker:https://index.docker.io/v1/"}, ""},
	".config/containers/auth.json": {`{"auths":{"quay.io":{"auth":"` + canary + `"}}}`, []string{"podman:quay.io"}, ""},
	".npmrc":                       {"registry=https://registry.npmjs.org/\n//registry.npmjs.org/:_authToken=" + canary + "\n//r.example.com/npm/:_password=" + canary + "\n//x.example.com/:_authToken=${NPM_TOKEN}\n", []string{"npm:registry.npmjs.org", "npm:r.example.com/npm"}, "registry=https://registry.npmjs.org/\n//r.example.com/npm/:_password=" + canary + "\n//x.example.com/:_authToken=${NPM_TOKEN}\n"},
	".yarnrc.yml":                  {"npmRegistries:\n  \"https://npm.example.com\":\n    npmAuthToken: " + canary + "\n", []string{"yarn:https://npm.example.com"}, ""},
	".pypirc":                      {"[distutils]\nindex-servers = pypi\n\n[pypi]\nusername = __token__\npassword = " + canary + "\n", []string{"pypi:pypi"}, "[distutils]\nindex-servers = pypi\n\n[pypi]\nusername = __token__\n"},
	".config/pypoetry/auth.toml":   {"[pypi-token]\npypi = \"" + canary + "\"\n", []string{"poetry:pypi-token"}, "[pypi-token]\n"},
	".cargo/credentials.toml":      {"[registry]\ntoken = \"" + canary + "\"\n[registries.own]\ntoken = '" + canary + "' # ours\n", []string{"cargo:registry", "cargo:registries.own"}, "[registry]\n[registries.own]\ntoken = '" + canary + "' # ours\n"},
	".cargo/credentials":           {"[registry]\ntoken = \"" + canary + "\"\n", []string{"cargo:registry"}, "[registry]\n"},
	".gem/credentials":             {"---\n:rubygems_api_key: " + canary + "\n", []string{"gem"}, ""},
	".local/share/gem/credentials": {"---\n:rubygems_api_key: " + canary + "\n", []string{"gem"}, ""},
	".config/gcloud/application_default_credentials.json": {`{"client_id":"x.apps.googleusercontent.com","client_secret":"` + canary + `","refresh_token":"` + canary + `","type":"authorized_user"}`, []string{"gcloud", "gcloud-2"}, ""},
	".config/gcloud/credentials.db":                       {"SQLite format 3\x00" + canary, []string{"gcloud"}, ""},
	".config/gcloud/access_tokens.db":                     {"SQLite format 3\x00" + canary, []string{"gcloud"}, ""},
	".config/gcloud/legacy_credentials/*/adc.json":        {`{"refresh_token":"` + canary + `"}`, []string{"gcloud"}, ""},
	".azure/msal_token_cache.json":                        {`{"RefreshToken":{"uid.utid-login.windows.net-refreshtoken-1--":{"secret":"` + canary + `"}}}`, []string{"azure:uid.utid-login.windows.net-refreshtoken-1--"}, ""},
	".azure/msal_token_cache.bin":                         {canary, []string{"azure"}, ""},
	".azure/accessTokens.json":                            {`[{"tokenType":"Bearer","accessToken":"` + canary + `","refreshToken":"` + canary + `"}]`, []string{"azure", "azure-2"}, ""},
	".azure/service_principal_entries.json":               {`[{"client_id":"x","client_secret":"` + canary + `"}]`, []string{"azure"}, ""},
	".claude/.credentials.json":                           {`{"claudeAiOauth":{"accessToken":"` + canary + `","refreshToken":"` + canary + `","expiresAt":1}}`, []string{"claude:claudeAiOauth", "claude:claudeAiOauth-2"}, ""},
	".claude.json":                                        {`{"numStartups":3,"primaryApiKey":"` + canary + `","mcpServers":{}}`, []string{"claude"}, ""},
	".codex/auth.json":                                    {`{"OPENAI_API_KEY":"` + canary + `","tokens":{"access_token":"` + canary + `","refresh_token":"` + canary + `","id_token":"` + canary + `"}}`, []string{"codex", "codex:tokens", "codex:tokens-2", "codex:tokens-3"}, ""},
	".gemini/oauth_creds.json":                            {`{"access_token":"` + canary + `","refresh_token":"` + canary + `","scope":"x"}`, []string{"gemini", "gemini-2"}, ""},
	".gemini/.env":                                        {"# mine\nGEMINI_API_KEY=\"" + canary + "\"\nOTHER=1\n", []string{"gemini"}, "# mine\nOTHER=1\n"},
	".config/openai/auth.json":                            {`{"api_key":"` + canary + `"}`, []string{"openai"}, ""},
	".config/io.datasette.llm/keys.json":                  {`{"// Note":"secret","openai":"` + canary + `"}`, []string{"llm"}, ""},
	".config/.wrangler/config/default.toml":               {"oauth_token = \"" + canary + "\"\nexpiration_time = \"2026-01-01\"\nrefresh_token = \"" + canary + "\"\n", []string{"wrangler", "wrangler-2"}, "expiration_time = \"2026-01-01\"\nrefresh_token = \"" + canary + "\"\n"},
	".wrangler/config/default.toml":                       {"api_token = \"" + canary + "\"\nx = 1\n", []string{"wrangler"}, "x = 1\n"},
	".config/stripe/config.toml":                          {"color = ''\n[default]\ndevice_name = 'x'\ntest_mode_api_key = '" + canary + "'\n", []string{"stripe:default"}, "color = ''\n[default]\ndevice_name = 'x'\n"},
	".terraform.d/credentials.tfrc.json":                  {`{"credentials":{"app.terraform.io":{"token":"` + canary + `"}}}`, []string{"terraform:app.terraform.io"}, ""},
	".terraformrc":                                        {"plugin_cache_dir = \"x\"\ncredentials \"app.terraform.io\" {\n  token = \"" + canary + "\"\n}\n", []string{"terraform:app.terraform.io"}, ""},
	".vault-token":                                        {canary, []string{"vault"}, "\x00gone"},
	".cache/huggingface/token":                            {canary + "\n", []string{"huggingface"}, "\x00gone"},
	".cache/huggingface/stored_tokens":                    {"[default]\nhf_token = " + canary + "\n", []string{"huggingface:default"}, "[default]\n"},
	".huggingface/token":                                  {canary, []string{"huggingface"}, "\x00gone"},
	".fly/config.yml":                                     {"access_token: " + canary + "\n", []string{"fly"}, ""},
	".config/netlify/config.json":                         {`{"users":{"123":{"auth":{"token":"` + canary + `"}}}}`, []string{"netlify:auth"}, ""},
	".local/share/com.vercel.cli/auth.json":               {`{"// Note":"x","token":"` + canary + `"}`, []string{"vercel"}, ""},
	".config/doctl/config.yaml":                           {"access-token: " + canary + "\napi-url: \"\"\n", []string{"digitalocean"}, ""},
	".config/hcloud/cli.toml":                             {"active_context = \"p\"\n[[contexts]]\nname = \"p\"\ntoken = \"" + canary + "\"\n", []string{"hetzner:contexts"}, "active_context = \"p\"\n[[contexts]]\nname = \"p\"\n"},
	".config/rclone/rclone.conf":                          {"[b2]\ntype = b2\nsecret_access_key = " + canary + "\n", []string{"rclone:b2"}, "[b2]\ntype = b2\n"},
	".pgpass":                                             {"db.example.com:5432:app:ada:" + canary + "\n", []string{"postgres:db.example.com"}, "\x00"},
	".my.cnf":                                             {"[client]\nuser = ada\npassword = " + canary + "\n", []string{"mysql:client"}, "[client]\nuser = ada\n"},
}

// helpers are what says that another program gives the credential.
var helpers = map[string]sample{
	".aws/config":          {"[profile dev]\ncredential_process = /usr/bin/issue --to dev\n", []string{"aws:dev"}, ""},
	".config/gh/hosts.yml": {"github.com:\n    user: ada\n    git_protocol: https\n", []string{"github:github.com"}, ""},
	".kube/config":         {"users:\n- name: eks\n  user:\n    exec:\n      command: aws\n", []string{"kube:eks"}, ""},
	".docker/config.json":  {`{"auths":{"ghcr.io":{}},"credsStore":"secretservice"}`, []string{"docker"}, ""},
}
