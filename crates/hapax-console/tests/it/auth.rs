//! Tests of authentication, and of the checks that protect forms against cross-site requests.

use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    time::{Instant, timeout},
};

use crate::scene::{OPERATOR, Scene, VIEWER, cookie_of, seal_of};

/// Half of the time that the server waits for the body of a form.
const AT_ONCE: Duration = Duration::from_secs(5);
const PAUSE: &str = "act=pause&dest=mail&reason=x";

#[tokio::test]
async fn who_is_not_signed_in_is_sent_to_sign_in_and_back() {
    let scene = Scene::with_tokens().await;
    for path in [
        "/console",
        "/console/events?q=type:a",
        "/console/act?act=pause&dest=mail",
    ] {
        let answer = scene.send(Method::GET, path, &[], "").await;
        assert_eq!(answer.status, 303, "{path}");
        assert!(
            answer
                .header("location")
                .unwrap()
                .starts_with("/console/login")
        );
    }
    let live = scene.send(Method::GET, "/console/live", &[], "").await;
    assert_eq!(live.status, 401);
    let forged = "hapax_console=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let answer = scene
        .send(Method::GET, "/console", &[("cookie", forged)], "")
        .await;
    assert_eq!(answer.status, 303);
    let ops = scene.sign_in(OPERATOR).await;
    assert!(ops.see("/console").await.contains("Sign out"));
}

#[tokio::test]
async fn a_wrong_token_is_refused_and_a_way_out_of_the_console_is_not_followed() {
    let scene = Scene::with_tokens().await;
    let page = scene.send(Method::GET, "/console/login", &[], "").await;
    let (cookie, csrf_token) = (cookie_of(&page), seal_of(&page));
    let origin = format!("http://{}", scene.address);
    let headers = [("cookie", cookie.as_str()), ("origin", &origin)];
    let sign_in = async |token: &str, next: &str| {
        let form = format!("seal={csrf_token}&token={token}&next={next}");
        scene
            .send(Method::POST, "/console/login", &headers, &form)
            .await
    };
    let wrong = ["", "operator", "operator-012345678", "operator-01234567890"];
    let began = Instant::now();
    for answer in join_all(wrong.map(|wrong| sign_in(wrong, ""))).await {
        assert_eq!(answer.status, 401, "{}", answer.text());
        assert!(answer.header("set-cookie").is_none());
    }
    assert!(
        began.elapsed() >= Duration::from_secs(1),
        "who guesses waits"
    );
    for (next, to) in [
        ("/console/events", "/console/events"),
        ("//evil.example", "/console"),
        ("https://evil.example/console", "/console"),
        ("/consoleevil", "/console"),
        ("/console/..%5C..%5Cevil", "/console"),
    ] {
        let answer = sign_in(OPERATOR, next).await;
        assert_eq!(answer.header("location"), Some(to), "{next}");
        let line = answer.header("set-cookie").unwrap();
        for part in ["HttpOnly", "SameSite=Strict", "Path=/console", "Max-Age="] {
            assert!(line.contains(part), "{line}");
        }
        assert_ne!(
            cookie_of(&answer),
            cookie,
            "each session has a separate cookie"
        );
    }
}

#[tokio::test]
async fn many_guesses_are_limited_and_a_valid_token_still_gets_in() {
    let scene = Scene::with_tokens().await;
    let page = scene.send(Method::GET, "/console/login", &[], "").await;
    let (cookie, csrf_token) = (cookie_of(&page), seal_of(&page));
    let origin = format!("http://{}", scene.address);
    let headers = [("cookie", cookie.as_str()), ("origin", &origin)];
    let form = format!("seal={csrf_token}&token=operator-987654321");
    let guess = || scene.send(Method::POST, "/console/login", &headers, &form);
    let crowd = (0..100).map(|_| guess());
    let (crowd, _ops) = tokio::join!(join_all(crowd), scene.sign_in(OPERATOR));
    for answer in crowd {
        match answer.status {
            401 => {}
            429 => assert_eq!(answer.header("retry-after"), Some("1")),
            other => panic!("{other}: {}", answer.text()),
        }
        assert!(answer.header("set-cookie").is_none());
    }
}

#[tokio::test]
async fn over_tls_the_cookie_is_for_tls_alone() {
    for (scene, secure) in [
        (Scene::over_tls().await, true),
        (Scene::with_tokens().await, false),
    ] {
        let page = scene.send(Method::GET, "/console/login", &[], "").await;
        let line = page.header("set-cookie").unwrap();
        assert_eq!(line.contains("; Secure"), secure, "{line}");
    }
}

#[tokio::test]
async fn a_refused_form_is_answered_before_it_is_read() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let eve = scene.sign_in(VIEWER).await;
    let own = format!("http://{}", scene.address);
    for (path, origin, cookie, status) in [
        ("/console/act", "http://evil.example", ops.cookie(), 403),
        ("/console/login", "http://evil.example", "", 403),
        ("/console/act", &own, "", 401),
        ("/console/act", &own, eve.cookie(), 403),
    ] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nOrigin: {origin}\r\nCookie: {cookie}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\n",
            scene.address
        );
        let line = told(&scene, &head).await;
        assert!(
            line.starts_with(&format!("HTTP/1.1 {status} ")),
            "{path} {origin}: {line}"
        );
    }
    let local = Scene::local().await;
    let head = "POST /console/act HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n\
                Content-Length: 100\r\n\r\n";
    let line = told(&local, head).await;
    assert!(line.starts_with("HTTP/1.1 403 "), "{line}");
}

/// Sends a request without its body, and returns the first line of the response.
async fn told(scene: &Scene, head: &str) -> String {
    let mut stream = TcpStream::connect(scene.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut line = String::new();
    let mut reader = BufReader::new(stream);
    let read = timeout(AT_ONCE, reader.read_line(&mut line)).await;
    read.expect("the server must respond without waiting for the body")
        .unwrap();
    line
}

#[tokio::test]
async fn who_signs_out_is_out() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(VIEWER).await;
    let csrf_token = seal_of(&ops.get("/console").await);
    let answer = ops
        .post("/console/logout", &format!("seal={csrf_token}"))
        .await;
    assert_eq!(answer.status, 303);
    assert_eq!(ops.get("/console").await.status, 303);
}

#[tokio::test]
async fn a_form_that_no_page_of_this_browser_sent_is_refused_and_nothing_is_done() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let other = scene.sign_in(OPERATOR).await;
    let csrf_token = seal_of(&ops.get("/console/act?act=pause&dest=mail").await);
    let origin = format!("http://{}", scene.address);
    let full = format!("seal={csrf_token}&{PAUSE}");
    for (form, origin) in [
        (PAUSE, Some(origin.as_str())),
        ("seal=&act=pause&dest=mail&reason=x", Some(&origin)),
        (&full, None),
        (&full, Some("null")),
        (&full, Some("http://evil.example")),
        (&full, Some("http://127.0.0.1:1")),
    ] {
        let answer = ops.post_from("/console/act", form, origin).await;
        assert_eq!(answer.status, 403, "{form} {origin:?}: {}", answer.text());
    }
    let answer = other.post("/console/act", &full).await;
    assert_eq!(
        answer.status, 403,
        "the CSRF token of another session was accepted"
    );
    assert_eq!(scene.count("hapax.audit_log WHERE actor = 'ops'").await, 0);
    assert_eq!(ops.post("/console/act", &full).await.status, 303);
    assert_eq!(scene.count("hapax.audit_log WHERE actor = 'ops'").await, 1);
}

#[tokio::test]
async fn a_viewer_sees_no_button_and_is_refused() {
    let scene = Scene::with_tokens().await;
    let eve = scene.sign_in(VIEWER).await;
    for path in [
        "/console/events/1",
        "/console/dead-letters?q=dest:mail",
        "/console/destinations/mail",
        "/console/sagas/saga-1",
        "/console/advanced",
        "/console/timeline?key=key-of-acme",
    ] {
        let page = eve.see(path).await;
        assert!(!page.contains("/console/act"), "{path}\n{page}");
    }
    let asked = eve.get("/console/act?act=pause&dest=mail").await;
    assert_eq!(asked.status, 400);
    let csrf_token = seal_of(&eve.get("/console").await);
    let answer = eve
        .post("/console/act", &format!("seal={csrf_token}&{PAUSE}"))
        .await;
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert_eq!(scene.count("hapax.audit_log WHERE actor = 'eve'").await, 0);
}

#[tokio::test]
async fn without_tokens_only_this_machine_is_answered() {
    let scene = Scene::local().await;
    let status = async |host: &str| {
        let headers = [("host", host)];
        scene
            .send(Method::GET, "/console", &headers, "")
            .await
            .status
    };
    assert_eq!(status("localhost").await, 200);
    assert_eq!(status("127.0.0.1:9466").await, 200);
    assert_eq!(status("evil.example").await, 403);
    assert_eq!(status("10.0.0.1").await, 403);
    for name in [
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-real-ip",
        "via",
    ] {
        let headers = [(name, "10.0.0.1")];
        let passed_on = scene.send(Method::GET, "/console", &headers, "").await;
        assert_eq!(passed_on.status, 403, "{name}");
        let page = passed_on.text();
        assert!(page.contains("only direct requests"), "{name}");
        // The navigation has the numbers of what waits and fails.
        assert!(!page.contains("/console/destinations"), "{name}: {page}");
    }
    let page = scene
        .send(Method::GET, "/console/act?act=pause&dest=mail", &[], "")
        .await;
    let (cookie, csrf_token) = (cookie_of(&page), seal_of(&page));
    let form = format!("seal={csrf_token}&{PAUSE}");
    let headers = [
        ("cookie", cookie.as_str()),
        ("origin", "http://evil.example"),
    ];
    let headers = [headers[0], headers[1], ("host", "evil.example")];
    let answer = scene
        .send(Method::POST, "/console/act", &headers, &form)
        .await;
    assert_eq!(answer.status, 403);
    let own = format!("http://{}", scene.address);
    let passed_on = [
        headers[0],
        ("origin", &own),
        ("x-forwarded-for", "10.0.0.1"),
    ];
    let answer = scene
        .send(Method::POST, "/console/act", &passed_on, &form)
        .await;
    assert_eq!(answer.status, 403);
    assert_eq!(
        scene.count("hapax.audit_log WHERE actor = 'local'").await,
        0
    );
}

#[tokio::test]
async fn with_tokens_a_proxy_may_pass_on_who_has_one() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let headers = [("cookie", ops.cookie()), ("x-forwarded-for", "10.0.0.1")];
    let page = scene.send(Method::GET, "/console", &headers, "").await;
    assert_eq!(page.status, 200);
}
