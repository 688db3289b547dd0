package secrettest

import "encoding/base64"

// namedSamples are credentials without a form of their own, known by what stands before them.
func namedSamples() []Sample {
	basic := base64.StdEncoding.EncodeToString([]byte("ann:" + "tulip-7-frost"))
	return []Sample{
		{Kind: "bearer-token", Before: "Authorization: Bearer ", Secret: Alnum(40)},
		{Kind: "basic-auth", Before: "Authorization: Basic ", Secret: basic},
		{Kind: "authorization", Before: "Authorization: token ", Secret: Hexes(40)},
		{Kind: "authorization", Before: "authorization: ", Secret: Lower(32)},
		{Kind: "basic-auth", Before: `"auth": "`, Secret: basic, After: `"`},
		{Kind: "api-key", Before: `curl -H "X-Api-Key: `, Secret: Lower(24), After: `" https://api.example`},
		{Kind: "token", Before: `-H 'PRIVATE-TOKEN: `, Secret: Dashed(20), After: `'`},
		{Kind: "cookie", Before: "Cookie: theme=dark; session=", Secret: Alnum(26)},
		{Kind: "cookie", Before: "Set-Cookie: sid=", Secret: Hexes(32), After: "; Path=/; HttpOnly"},
		{Kind: "cookie", Before: "curl --cookie 'sessionid=", Secret: Lower(24), After: "' https://shop.example"},

		{Kind: "url-password", Before: "postgres://user:", Secret: "pa55", After: "@db.example/app"},
		{Kind: "url-password", Before: "redis://:", Secret: "tulip7frost", After: "@cache.example:6379/0"},
		{Kind: "url-password", Before: "https://oauth2:", Secret: Alnum(20), After: "@git.example/a.git"},
		{Kind: "url-password", Before: "amqp://bob:", Secret: "fr@st#9", After: "@mq.example"},

		{Kind: "password", Before: "tool --password ", Secret: "tulip7frost"},
		{Kind: "password", Before: "tool --db-password=", Secret: "tulip7frost"},
		{Kind: "password", Before: "tool -password '", Secret: "tulip;7;frost", After: "'"},
		{Kind: "token", Before: "tool --token ", Secret: Lower(20)},
		{Kind: "password", Before: "mysql -u root -p'", Secret: "sesame", After: "' shop"},
		{Kind: "password", Before: "mysqldump -p", Secret: "Tulip7", After: " shop"},
		{Kind: "password", Before: "sshpass -p ", Secret: "tulip7", After: " ssh -p 2222 host.example"},
		{Kind: "password", Before: "docker login -u ann -p ", Secret: "tulip7frost", After: " box.example"},
		{Kind: "password", Before: "redis-cli -a ", Secret: "tulip7frost", After: " ping"},
		{Kind: "password", Before: "curl -s -u ann:", Secret: "tulip", After: " https://api.example"},
		{Kind: "password", Before: "curl --user 'ann:", Secret: "tulip frost", After: "' https://api.example"},
		{Kind: "password", Before: "PGPASSWORD=", Secret: "letmein", After: " psql -h db.example"},
		{Kind: "password", Before: "export DB_PASS='", Secret: "tulip7frost", After: "'"},
		{Kind: "token", Before: "export FOO_TOKEN=", Secret: Lower(20)},
		{Kind: "token", Before: "//packages.example/:_authToken=", Secret: Hexes(36)},
		{Kind: "password", Before: "machine api.example login ann password ", Secret: "tulip7frost"},
		{Kind: "password", Before: "CREATE USER ann PASSWORD '", Secret: "tulip7frost", After: "';"},
		{Kind: "password", Before: "CREATE USER ann IDENTIFIED BY '", Secret: "sesame", After: "';"},
		{Kind: "password", Before: "<password>", Secret: "tulip7frost", After: "</password>"},

		{Kind: "password", Before: "password: ", Secret: "hunter2", Line: true},
		{Kind: "password", Before: "spring.datasource.password = ", Secret: "tulip7frost", Line: true},
		{Kind: "password", Before: `password: str = "`, Secret: "tulip7frost", After: `"`},
		{Kind: "password", Before: `const dbPassword = "`, Secret: "tulip#frost", After: `";`},
		{Kind: "password", Before: `config["admin_password"] = '`, Secret: "tulip7frost", After: `'`},
		{Kind: "secret", Before: `"jwtSecret": "`, Secret: "tulip7frost", After: `",`},
		{Kind: "client-secret", Before: "client_secret=", Secret: Lower(24), After: "&grant_type=x"},
		{Kind: "webhook-secret", Before: "WEBHOOK_SECRET=", Secret: "tulip7frost"},
		{Kind: "access-key", Before: "access_key: ", Secret: Lower(24)},
		{Kind: "secret-key", Before: "SECRET_KEY=", Secret: "django-insecure-" + Lower(30)},
		{Kind: "private-key", Before: "client-key-data: ", Secret: Alnum(400)},
		{Kind: "datadog-key", Before: "DD_API_KEY=", Secret: Hexes(32)},
		{Kind: "api-key", Before: "https://api.example/v1?api_key=", Secret: Hexes(32), After: "&page=2"},
		{Kind: "token", Before: "https://api.example/v1?access_token=", Secret: Lower(32), After: "#top"},
		{Kind: "credentials", Before: "credentials=", Secret: Lower(24)},
		{Kind: "password", Before: `\"password\": \"`, Secret: "tulip7frost", After: `\"`},
	}
}
