//! Tests that text from rows is escaped on every page.

use crate::scene::{EVIL, OPERATOR, Scene};

#[tokio::test]
async fn nothing_that_a_row_says_becomes_markup() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let coded = "%3Cscript%3Ealert%28%27x%27%29%3C%2Fscript%3E";
    let mut outcome = 0;
    for path in [
        "/console".to_owned(),
        "/console/events".to_owned(),
        "/console/events/1".to_owned(),
        "/console/events/3".to_owned(),
        format!("/console/timeline?key={coded}"),
        "/console/deliveries".to_owned(),
        "/console/dead-letters".to_owned(),
        "/console/keys".to_owned(),
        "/console/inbox".to_owned(),
        "/console/sagas".to_owned(),
        format!("/console/sagas/{coded}"),
        "/console/destinations".to_owned(),
        "/console/destinations/turtle".to_owned(),
        "/console/endpoints".to_owned(),
        "/console/endpoints/ep_gone".to_owned(),
        format!("/console/endpoints?q={coded}"),
        format!("/console/endpoints/{coded}"),
        format!("/console/polling/{coded}"),
        "/console/advanced".to_owned(),
        format!("/console/events?q={coded}"),
        format!("/console/events?q=type:{coded}"),
        format!("/console/act?act={coded}"),
        format!("/console/act?act=purge-key&operation={coded}&key={coded}"),
        format!("/console/reference/cli?q={coded}"),
        format!("/console/{coded}"),
        format!("/console/login?next={coded}"),
        format!("/console?said={coded}"),
    ] {
        let page = ops.get(&path).await.text();
        for raw in ["<script>", "</script>.", "<script>alert"] {
            let own = "<script src=\"/console/assets/";
            assert!(
                !page.replace(own, "").contains(raw),
                "{path}: {raw}\n{page}"
            );
        }
        assert!(!page.contains(EVIL), "{path}");
        outcome += usize::from(page.contains("&lt;script&gt;"));
    }
    // Without this check the test would pass on pages that do not show the rows.
    assert!(outcome >= 14, "{outcome}");
}

#[tokio::test]
async fn no_page_has_a_script_or_a_style_inside() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    for path in [
        "/console",
        "/console/events/1",
        "/console/sagas/saga-1",
        "/console/advanced",
    ] {
        let answer = ops.get(path).await;
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"));
        assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"));
        assert_eq!(answer.header("x-frame-options"), Some("DENY"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("referrer-policy"), Some("same-origin"));
        let page = answer.text();
        assert_eq!(page.matches("<script").count(), 1, "{path}");
        assert!(
            !page.contains(" style=") && !page.contains("<style"),
            "{path}"
        );
        assert!(
            !page.contains(" onclick") && !page.contains("javascript:"),
            "{path}"
        );
        assert!(
            !page.contains("http://") && !page.contains("src=\"https://"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn what_pages_load_is_named_by_its_hash_and_kept() {
    let scene = Scene::local().await;
    let get = async |path: &str, headers: &[(&str, &str)]| {
        scene.send(http::Method::GET, path, headers, "").await
    };
    let page = get("/console", &[]).await.text();
    for end in [".css", ".js", ".svg"] {
        let at = page.find(end).unwrap() + end.len();
        let path = page[..at].rsplit('"').next().unwrap();
        let file = get(path, &[]).await;
        assert_eq!(file.status, 200, "{path}");
        assert!(file.header("cache-control").unwrap().contains("immutable"));
        let tag = file.header("etag").unwrap();
        assert!(path.contains(tag.trim_matches('"')), "{path} {tag}");
        assert_eq!(get(path, &[("if-none-match", tag)]).await.status, 304);
        let other = path.replace(tag.trim_matches('"'), "0000000000000000");
        assert_eq!(get(&other, &[]).await.status, 404);
    }
}
