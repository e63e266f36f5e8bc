//! The operator's page, as HTML. `tests/page` looks at it with a browser.

use super::*;

const PAGES: [&str; 17] = [
    "/ui/config",
    "/ui/config?generation=1&against=2",
    "/ui/clients/100/tail?type=Cluster",
    "/ui/changes",
    "/ui/rollouts",
    "/ui/rollouts/edge",
    "/ui/rollouts/edge/40",
    "/ui/clients/100/diff",
    "/ui/clients/100/explain?type=Cluster",
    "/ui/",
    "/ui/clients",
    "/ui/clients/100?type=Cluster",
    "/ui/resources",
    "/ui/sources",
    "/ui/classes",
    "/ui/load",
    "/ui/events",
];

fn fleet(clients: usize) -> Fixture {
    let sources = vec![
        source("cp-1", SourceState::Connected, false),
        source("cp-2", SourceState::Backoff { failures: 3, delay: Duration::from_secs(1) }, true),
    ];
    let view = FakeView { clients, sources, rollouts: rollouts::some(), ..FakeView::default() };
    Fixture::of(view, AdminSettings::default(), None)
}

/// The attributes of all elements. Texts have no markup, because they are escaped.
fn attributes(html: &str) -> Vec<&str> {
    let tags = html.split('<').skip(1).filter_map(|tag| tag.split('>').next());
    tags.flat_map(|tag| tag.split_whitespace().skip(1)).collect()
}

#[tokio::test]
async fn pag_2_pages_have_no_inline_script_or_style_and_a_policy() {
    let admin = fleet(200);
    for path in PAGES {
        let answer = admin.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        assert!(answer.head.contains("content-type: text/html; charset=utf-8"), "{path}: {}", answer.head);
        assert!(
            answer.head.contains("content-security-policy: default-src 'none'; script-src 'self';"),
            "{path}"
        );
        assert_eq!(answer.body.matches("<h1>").count(), 1, "{path}");
        assert!(!answer.body.contains("<style") && !answer.body.contains("javascript:"), "{path}");
        for attribute in attributes(&answer.body) {
            let is_bad = attribute.starts_with("on") || attribute.starts_with("style=");
            assert!(!is_bad, "{path}: {attribute}");
        }
        for script in answer.body.split("<script").skip(1) {
            assert!(script.contains("></script>"), "{path}: {script}");
        }
    }
}

#[tokio::test]
async fn pag_3_the_page_changes_nothing() {
    let admin = fleet(200);
    for path in PAGES {
        let body = admin.get(path).await.body;
        for form in body.split("<form").skip(1) {
            assert!(form.split('>').next().unwrap().contains("method=\"get\""), "{path}: {form}");
        }
        let posted = admin.send(&get_request(path).replacen("GET", "POST", 1)).await;
        assert_eq!(posted.status, 405, "{path}");
    }
}

#[tokio::test]
async fn pag_2_assets_have_the_path_of_their_content() {
    let admin = fleet(1);
    let body = admin.get("/ui/").await.body;
    let assets: Vec<&str> = attributes(&body)
        .into_iter()
        .filter_map(|attribute| attribute.split('"').nth(1).filter(|path| path.starts_with("/ui/assets/")))
        .collect();
    assert_eq!(assets.len(), 5, "{assets:?}");
    for path in assets {
        let answer = admin.get(path).await;
        assert_eq!((answer.status, answer.body.is_empty()), (200, false), "{path}");
        assert!(
            answer.head.contains("cache-control: private, max-age=31536000, immutable"),
            "{}",
            answer.head
        );
        let other = path.replacen("assets/", "assets/0", 1);
        let answer = admin.get(&other).await;
        assert_eq!(answer.status, 404, "{other}");
        assert!(answer.head.contains("cache-control: no-store"), "{}", answer.head);
    }
}

#[tokio::test]
async fn a_browser_at_the_root_is_sent_to_the_page() {
    let admin = fleet(1);
    let accepting =
        |accept: &str| get_request("/").replace("\r\n\r\n", &format!("\r\nAccept: {accept}\r\n\r\n"));
    for accept in ["text/html,application/xhtml+xml,*/*;q=0.8", "text/html"] {
        let answer = admin.send(&accepting(accept)).await;
        assert_eq!((answer.status, answer.head.contains("location: /ui/\r\n")), (303, true), "{accept}");
    }
    for accept in ["*/*", "application/json, text/html", "text/plain"] {
        assert_eq!(admin.send(&accepting(accept)).await.status, 200, "{accept}");
    }
    assert_eq!(admin.get("/ui").await.status, 303);
}

#[tokio::test]
async fn a_request_without_a_page_gets_a_page_that_says_why() {
    let admin = fleet(200);
    for (path, status, text) in [
        ("/ui/nothing", 404, "nothing"),
        ("/ui/clients/4711", 404, "4711"),
        ("/ui/clients?state=%3Cb%3E", 400, "&#60;b&#62;"),
        ("/ui/clients/1?type=Listener", 404, "Listener"),
        ("/ui/clients/4711/tail", 404, "4711"),
        ("/ui/clients/1/tail?type=Clustr", 400, "Cluster"),
        ("/ui/clients?stat=ERROR", 400, "nearest: state"),
        ("/ui/clients?state=EROR", 400, "nearest: ERROR"),
        ("/ui/clients?after=x", 400, "after"),
        ("/ui/resources?type=Clustr", 400, "Cluster"),
        ("/ui/config?generation=9", 404, "kept: 1, 2"),
        ("/ui/config?against=9", 404, "kept: 1, 2"),
        ("/ui/config?against=%3Cb%3E", 400, "allowed: a number"),
    ] {
        let answer = admin.get(path).await;
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.body.contains(text) && answer.body.contains("<h1>"), "{path}: {}", answer.body);
    }
}

#[tokio::test]
async fn adm_12_of_secrets_only_names_are_shown() {
    let admin = fleet(200);
    for path in ["/ui/clients/100", "/ui/clients/100?type=Secret", "/ui/clients?type=Secret&node=node-100"] {
        let body = admin.get(path).await.body;
        let body = body.replace("<div class=\"banner", "<tr");
        let row = body.split("<tr").filter(|row| row.contains("Secret")).collect::<String>();
        assert!(!row.contains("sniffed") && !row.contains("00000abc"), "{path}: {row}");
    }
    let body = admin.get("/ui/resources?type=Secret").await.body;
    assert!(body.contains("only the names are shown") && !body.contains("4.6KiB"), "{body}");
}

/// The time that this thread has worked. Relay and reader share the thread, and other tests do not count.
fn work() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn pag_5_pages_of_a_large_fleet_are_quick_and_join() {
    let admin = fleet(100_000);
    let started = work();
    let first = admin.get("/ui/clients").await;
    let took = work() - started;
    assert!(took <= Duration::from_millis(300), "{took:?}");
    assert!(admin.view.pulled.load(SeqCst) <= 201, "only the first page is looked at");
    assert_eq!(first.body.matches("<tr data-key=").count(), 200);
    let next = attributes(&first.body).into_iter().find(|href| href.contains("after=")).unwrap().to_owned();
    let second = admin.get(&next.split('"').nth(1).unwrap().replace("&#38;", "&")).await;
    assert!(second.body.contains("aria-rowindex=\"202\""), "{}", second.body);
    assert!(second.body.contains("/ui/clients/200\"") && !second.body.contains("/ui/clients/199\""));

    let started = work();
    let found = admin.get("/ui/clients?q=NODE-99999").await;
    let took = work() - started;
    assert!(took <= Duration::from_secs(1), "{took:?}");
    assert_eq!(found.body.matches("<tr data-key=").count(), 1);
}

#[tokio::test]
async fn pag_4_an_address_is_the_whole_state_of_a_page() {
    let admin = fleet(200);
    let body = admin.get("/ui/clients?state=ERROR&class=c0ffee&q=node&sort=").await.body;
    assert_eq!(body.matches("<tr data-key=").count(), 2);
    for part in [
        "<option selected>ERROR</option>",
        "name=\"q\" value=\"node\"",
        "<input type=\"hidden\" name=\"class\" value=\"c0ffee\">",
        "href=\"/ui/clients?state=ERROR&#38;q=node\"",
    ] {
        assert!(body.contains(part), "{part}: {body}");
    }
}

#[tokio::test]
async fn adm_3_a_link_from_elsewhere_opens_the_page_and_nothing_else() {
    let admin = fleet(1);
    let from_elsewhere = async |path: &str, mode: &str, dest: &str| {
        let headers = format!(
            "\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: {mode}\r\nSec-Fetch-Dest: {dest}\r\n\r\n"
        );
        admin.send(&get_request(path).replace("\r\n\r\n", &headers)).await.status
    };
    assert_eq!(from_elsewhere("/ui/clients", "navigate", "document").await, 200);
    assert_eq!(from_elsewhere("/ui/", "navigate", "document").await, 200);
    for (path, mode, dest) in [
        ("/clients", "navigate", "document"),
        ("/ui/clients", "navigate", "iframe"),
        ("/ui/clients", "no-cors", "image"),
        ("/ui/clients", "cors", "empty"),
    ] {
        assert_eq!(from_elsewhere(path, mode, dest).await, 403, "{path} {mode} {dest}");
    }
}

#[tokio::test]
async fn pag_4_the_configuration_shows_its_generations_a_difference_and_the_last_fault() {
    let admin = fleet(1);
    let body = admin.get("/ui/config").await.body;
    for part in [
        "<dd>2, in force</dd>",
        "c0ffee02",
        "/etc/sluice/sluice.yaml",
        "&#34;drain&#34;: &#34;2s&#34;",
        "href=\"/ui/config?generation=2&#38;against=1\"",
        "sluice rollback --to 1 --dry-run",
        "sluice reload --dry-run",
        "<code>admin.address</code>",
    ] {
        assert!(body.contains(part), "{part}: {body}");
    }
    assert!(!body.contains("The last reload"), "none yet: {body}");

    let former = admin.get("/ui/config?generation=1&against=2").await.body;
    for part in [
        "<dd>1, not in force: 2 is.",
        "From generation 2 to generation 1",
        "<td class=\"id\">2s</td><td class=\"id\">1s</td><td>live</td>",
        "<option selected>1</option>",
    ] {
        assert!(former.contains(part), "{part}: {former}");
    }

    admin.reloading.fail(&["drain: found <b>", "linger: unknown key"]);
    let body = admin.get("/ui/config").await.body;
    for part in [
        "The last reload failed: invalid. Generation 2 stays in force.",
        "drain: found &#60;b&#62;",
        "linger: unknown key",
        "sluice reload --yes",
    ] {
        assert!(body.contains(part), "{part}: {body}");
    }
    let overview = admin.get("/ui/").await.body;
    assert!(overview.contains("<li data-key=\"/ui/config\"><a href=\"/ui/config\">"), "{overview}");
}

#[tokio::test]
async fn hnd_5_the_overview_shows_an_upgrade_in_progress() {
    let admin = fleet(1);
    assert!(!admin.get("/ui/").await.body.contains("An upgrade is in progress"));
    *admin.process.predecessor.lock() = Some(acts::draining(12));
    let body = admin.get("/ui/").await.body;
    let told = "process 7 with version 0.0.9 still has 12 streams on 2 connections, and ends within 42s.";
    assert!(body.contains(told), "{body}");
}

#[tokio::test]
async fn pag_4_a_client_leads_to_what_it_is_sent_and_its_rejections_come_first() {
    let admin = fleet(200);
    let body = admin.get("/ui/clients/100").await.body;
    assert!(body.contains("href=\"/ui/clients/100/tail\""), "{body}");
    let (words, table) = (body.find("<blockquote>").unwrap(), body.find("<table").unwrap());
    assert!(words < table, "{body}");
}
