//! Tests which services of Symfony are left to requests: those whose constructors keep something of
//! a visitor, of the time or of chance.

use super::super::site::framework;
use super::{SUBSCRIBER, without_libraries};

/// What the constructor of a service keeps, and whether each request must create the service.
const KEPT: &[(&str, &str, bool)] = &[
    ("Constant", "new \\ArrayObject([1])", false),
    ("Services", "[$requests, $tokens]", false),
    ("Date", "date('d.m.Y')", true),
    ("Day", "intdiv(time(), 86_400)", true),
    ("Midnight", "new \\DateTimeImmutable('today')", true),
    ("Memo", "self::$memo ??= date('Ymd')", true),
    ("Server", "date('Ymd', $_SERVER['REQUEST_TIME'])", true),
    ("Float", "(int) microtime(true) >> 17", true),
    (
        "Captured",
        "(fn ($n) => fn () => $n)(random_int(0, PHP_INT_MAX))",
        true,
    ),
    (
        "Listed",
        "new \\ArrayObject([random_int(0, PHP_INT_MAX)])",
        true,
    ),
    (
        "Seeded",
        "new \\Random\\Engine\\Mt19937(random_int(0, PHP_INT_MAX))",
        true,
    ),
    ("Hidden", "new \\SplPriorityQueue()", true),
    ("User", "$tokens->getToken()?->getUserIdentifier()", true),
    ("LoggedIn", "null !== $tokens->getToken()", true),
    ("Session", "(bool) $request?->hasSession()", true),
    ("Locale", "$request?->getLocale() ?? 'en'", true),
    (
        "Route",
        "$request?->attributes->get('_locale') ?? 'en'",
        true,
    ),
    (
        "Language",
        "substr($_SERVER['HTTP_ACCEPT_LANGUAGE'] ?? 'en', 0, 2)",
        true,
    ),
    ("Secure", "$request?->isSecure() ?? false", true),
    ("Scheme", "$_SERVER['REQUEST_SCHEME'] ?? 'http'", true),
    ("Ajax", "$request?->isXmlHttpRequest() ?? false", true),
    (
        "Phone",
        "str_contains($_SERVER['HTTP_USER_AGENT'] ?? '', 'Mobile')",
        true,
    ),
    (
        "Local",
        "'127.0.0.1' === ($request?->getClientIp() ?? '127.0.0.1')",
        true,
    ),
];

const CONSTRUCTOR: &str = "private static mixed $memo = null;
    private mixed $kept;

    public function __construct(
        \\Symfony\\Component\\HttpFoundation\\RequestStack $requests,
        \\Symfony\\Component\\Security\\Core\\Authentication\\Token\\Storage\\TokenStorageInterface
            $tokens,
    )";

/// Of some of these, all objects of a day or of most visitors are equal.
#[test]
fn symfony_service_that_keeps_a_visitor_or_a_date_or_hides_it_is_left_to_requests() {
    let mut site = without_libraries();
    for (name, kept, _) in KEPT {
        let class = SUBSCRIBER
            .replace("class Subscriber", &format!("class Kept{name}"))
            .replace(
                "error_log('a subscriber is created')",
                &format!(
                    "$request = $requests->getCurrentRequest();\n        $this->kept = {kept}"
                ),
            )
            .replace("error_log('a subscriber is called')", "// nothing")
            .replace("public function __construct()", CONSTRUCTOR);
        site = site.write(&format!("src/Service/Kept{name}.php"), &class);
    }
    let site = site.vendor_from(&framework("symfony7"));
    let env = [("SURUS_ENV_APP_ENV", "prod"), ("SURUS_ENV_APP_DEBUG", "0")];
    let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &env);
    surus.wait_for_log(|log| log.contains("services created ahead"));
    let log = surus.log().replace(r"\\", r"\");
    for (name, _, is_left) in KEPT {
        let left = format!(r"App\Service\Kept{name} is created by each request");
        assert_eq!(log.contains(&left), *is_left, "{name}: {log}");
    }
}
