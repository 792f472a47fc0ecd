//! Hosts whose name server does not respond, together with hosts whose name server does.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use futures_util::future::join_all;
use hapax::{event::NewEvent, sink::Sink};
use hapax_sinks::{
    limits::{LOOKUP_LOST, LOOKUPS_SLOW},
    resolve::{LookupError, Resolver},
    settings::DestinationSettings,
    smtp::Smtp,
    webhook::Webhook,
};
use hapax_testkit::{http::HttpReceiver, wait::eventually};
use serde_json::json;
use tokio::time::timeout;

use crate::{
    events::{PATIENCE, deliver, offer},
    sinks, smtp,
};

/// Name servers that do not respond for hosts that begin with `silent`, until `speak` is called.
#[derive(Clone, Default)]
struct Servers(Arc<Inner>);

#[derive(Default)]
struct Inner {
    speak: Mutex<bool>,
    told: Condvar,
    asked: Mutex<HashMap<String, usize>>,
}

impl Servers {
    fn resolver(&self) -> Resolver {
        let servers = self.clone();
        Resolver::new(move |host| servers.answer(host))
    }

    fn answer(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        *self
            .0
            .asked
            .lock()
            .unwrap()
            .entry(host.to_owned())
            .or_default() += 1;
        if host.starts_with("nowhere") {
            return Err(io::ErrorKind::NotFound.into());
        }
        if host.starts_with("silent") {
            let mut speak = self.0.speak.lock().unwrap();
            while !*speak {
                speak = self.0.told.wait(speak).unwrap();
            }
        }
        Ok(vec![Ipv4Addr::LOCALHOST.into()])
    }

    fn speak(&self, speak: bool) {
        *self.0.speak.lock().unwrap() = speak;
        self.0.told.notify_all();
    }

    /// The number of lookups of hosts with this prefix.
    fn asked(&self, prefix: &str) -> usize {
        let asked = self.0.asked.lock().unwrap();
        let of_these = asked.iter().filter(|(host, _)| host.starts_with(prefix));
        of_these.map(|(_, times)| times).sum()
    }
}

fn webhook(host: &str, port: u16, servers: &Resolver) -> Arc<Webhook> {
    let url = format!("http://{host}:{port}/");
    Arc::new(sinks::webhook(&url, resolved_by(servers.clone()), |_| {}))
}

fn resolved_by(resolver: Resolver) -> DestinationSettings {
    DestinationSettings {
        resolver,
        ..sinks::destination()
    }
}

fn event(number: u64) -> hapax::sink::Offer {
    offer(number, NewEvent::json("order.created", &json!({})))
}

#[tokio::test]
async fn offers_to_a_host_of_which_nothing_is_heard_share_one_look_up_and_affect_no_other() {
    let (servers, receiver) = (Servers::default(), HttpReceiver::start().await);
    let (resolver, port) = (servers.resolver(), receiver.address().port());
    let silent = webhook("silent.example", port, &resolver);
    let offers = (0..600).map(|number| {
        let silent = Arc::clone(&silent);
        tokio::spawn(async move { deliver(&*silent, event(number)).await })
    });
    let offers: Vec<_> = offers.collect();
    eventually(PATIENCE, async || servers.asked("silent") > 0).await;
    // The runtime's threads are free. Otherwise all 512 of them would be in use.
    tokio::task::spawn_blocking(|| ()).await.unwrap();
    let well = webhook("well.example", port, &resolver);
    let delivered = timeout(Duration::from_secs(5), deliver(&*well, event(1_000)));
    delivered.await.unwrap().unwrap();
    for (number, outcome) in join_all(offers).await.into_iter().enumerate() {
        let error = outcome.unwrap().unwrap_err();
        assert_eq!(error.error_type(), "resolve", "{number}: {error:?}");
    }
    assert_eq!(servers.asked("silent"), 1);
    // While that lookup is still in progress, another offer fails at once.
    let outcome = timeout(Duration::from_secs(2), deliver(&*silent, event(1_001)));
    let error = outcome.await.unwrap().unwrap_err();
    assert!(
        error.error_chain().contains("has not responded"),
        "{error:?}"
    );
    servers.speak(true);
    eventually(PATIENCE, async || {
        deliver(&*silent, event(1_002)).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn many_hosts_of_which_nothing_is_heard_leave_room_for_those_that_are_well() {
    let servers = Servers::default();
    let resolver = servers.resolver();
    let hosts = |kind| (0..64).map(move |n| format!("silent-{kind}-{n}.example"));
    let look_up = |host: &str| {
        let (resolver, host) = (resolver.clone(), host.to_owned());
        tokio::spawn(async move { resolver.look_up(&host).await })
    };
    // No host is known to be slow, so the lookups take all slots, until they are found slow.
    let mut first: Vec<_> = hosts("a").map(|host| look_up(&host)).collect();
    eventually(PATIENCE, async || servers.asked("silent") == 64).await;
    timeout(PATIENCE, look_up("well.example"))
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    first.extend(hosts("b").map(|host| look_up(&host)));
    eventually(PATIENCE, async || servers.asked("silent") == 128).await;
    servers.speak(true);
    for looked_up in join_all(first).await {
        looked_up.unwrap().unwrap();
    }
    // Now these hosts are known to be slow, and use only the slots for slow hosts.
    servers.speak(false);
    let again: Vec<_> = hosts("a").map(|host| look_up(&host)).collect();
    eventually(PATIENCE, async || servers.asked("silent") == 128 + 32).await;
    timeout(Duration::from_secs(5), look_up("well.example"))
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    servers.speak(true);
    let again = join_all(again).await;
    let refused = again
        .iter()
        .filter(|it| matches!(it, Ok(Err(LookupError::Busy(_)))));
    assert_eq!(refused.count(), 32);
    // A host that responds quickly again is not slow any more.
    eventually(PATIENCE, async || {
        join_all(hosts("a").map(|host| look_up(&host)))
            .await
            .iter()
            .all(|it| matches!(it, Ok(Ok(_))))
    })
    .await;
}

/// Files and databases need these threads, and the runtime has a limited number of them.
#[test]
fn a_look_up_takes_no_thread_of_the_runtimes_own() {
    let servers = Servers::default();
    let resolver = servers.resolver();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let silent = tokio::spawn(async move { resolver.look_up("silent.example").await });
        eventually(PATIENCE, async || servers.asked("silent") == 1).await;
        let free = timeout(PATIENCE, tokio::task::spawn_blocking(|| ())).await;
        // The server must respond before anything else. Otherwise the thread would keep the runtime
        // from ending.
        servers.speak(true);
        free.unwrap().unwrap();
        silent.await.unwrap().unwrap();
    });
}

/// The lookup of a host may never end. Then another one is started, a limited number of times.
#[tokio::test(start_paused = true)]
async fn a_look_up_that_is_lost_is_begun_again_as_often_as_slow_ones_have_places() {
    let servers = Servers::default();
    let resolver = servers.resolver();
    let mut busy = 0;
    for _ in 0..LOOKUPS_SLOW + 8 {
        let error = resolver.look_up("silent.example").await.unwrap_err();
        busy += usize::from(matches!(error, LookupError::Busy(_)));
        tokio::time::advance(LOOKUP_LOST).await;
    }
    assert_eq!(busy, 8);
    // The threads are real, and take real time to start.
    tokio::time::resume();
    eventually(PATIENCE, async || servers.asked("silent") == LOOKUPS_SLOW).await;
    servers.speak(true);
}

#[tokio::test]
async fn a_name_that_leads_nowhere_is_reported_by_every_sink() {
    let servers = Servers::default();
    let resolver = servers.resolver();
    let templates = smtp::templates();
    let mail = smtp::from(templates.path(), "smtp://nowhere-2.example:25");
    let destination = resolved_by(resolver.clone());
    let sinks: [Arc<dyn Sink>; 6] = [
        webhook("nowhere-1.example", 1, &resolver),
        Arc::new(Smtp::new(&mail, destination.clone()).unwrap()),
        Arc::new(sinks::nats(
            "nats://nowhere-3.example,nats://nowhere.too",
            destination.clone(),
            |_| {},
        )),
        Arc::new(sinks::amqp(
            "amqp://nowhere-4.example",
            destination.clone(),
            |_| {},
        )),
        Arc::new(sinks::redis(
            "redis://nowhere-5.example",
            destination.clone(),
            |_| {},
        )),
        Arc::new(sinks::postgres(
            "postgres://shop@nowhere-6.example/shop",
            destination.clone(),
            |_| {},
        )),
    ];
    for sink in sinks {
        let data = json!({"name": "n", "email": "a@example.com"});
        let offers = [offer(1, NewEvent::json("user.signed_up", &data))];
        let error = sink.deliver(&offers).await.remove(0).unwrap_err();
        assert_eq!(error.error_type(), "resolve", "{}: {error:?}", sink.kind());
    }
    assert_eq!(servers.asked("nowhere"), 7);
}

#[tokio::test]
async fn what_a_resolver_says_is_judged_by_the_guard() {
    let receiver = HttpReceiver::start().await;
    let port = receiver.address().port();
    let url = format!("http://inside.example:{port}/");
    let destination = resolved_by(Servers::default().resolver());
    let inside = sinks::webhook(&url, destination, |it| it.allow.clear());
    let error = deliver(&inside, event(1)).await.unwrap_err();
    assert_eq!(error.error_type(), "blocked", "{error:?}");
    assert!(receiver.received().is_empty());
}
