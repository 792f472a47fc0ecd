//! A private RabbitMQ node that limits the size of messages, forbids topics, has a full disk and is
//! killed.

use std::{collections::HashSet, sync::Arc, time::Duration};

use hapax::{
    event::NewEvent,
    sink::{Offer, Outcome, Sink, SinkError},
};
use hapax_testkit::{
    assert_matches,
    wait::{answered, eventually},
};
use lapin::{
    options::{QueueBindOptions, QueueDeclareOptions},
    types::FieldTable,
};
use tokio::time::{Instant, timeout};

use crate::{
    amqp::url,
    amqp_broker::{Corner, Node, Taken, drain},
    events::{PATIENCE, any_offer, deliver, offer, postponed, rejected, still_open},
    sinks,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_private_node_is_killed_runs_full_and_bounds_its_messages() {
    let mut node = Node::start().await;
    answered(4 * PATIENCE, a_large_message_is_rejected_alone(&node)).await;
    answered(
        4 * PATIENCE,
        events_of_a_forbidden_key_hold_up_no_others(&node),
    )
    .await;
    let alarm = an_alarm_holds_events_back_and_nothing_hangs(&node);
    answered(4 * PATIENCE, alarm).await;
    // The node may have to be started several times.
    let killed = a_node_that_is_killed_in_mid_batch_loses_nothing(&mut node);
    answered(10 * PATIENCE, killed).await;
}

fn is_unavailable(outcome: &Outcome) -> bool {
    matches!(outcome, Err(SinkError::Unavailable { .. }))
}

/// Delivers a batch. A message that was on its way when the broker closed the channel for another
/// one may cost the connection: it is offered again, as the relay does.
async fn deliver_all(sink: &impl Sink, batch: &[Offer]) -> Vec<Outcome> {
    let mut outcomes = sink.deliver(batch).await;
    while let Some(index) = outcomes.iter().position(is_unavailable) {
        outcomes[index] = sink.deliver(&batch[index..=index]).await.remove(0);
    }
    outcomes
}

async fn a_large_message_is_rejected_alone(node: &Node) {
    node.eval("application:set_env(rabbit, max_message_size, 100000), persistent_term:put(max_message_size, 100000).").await;
    let corner = Corner::at(&node.address()).await;
    let sink = sinks::amqp(url(&node.address()), sinks::destination(), |it| {
        it.exchange.clone_from(&corner.name);
    });
    let sized = |number: u64, size: usize| offer(number, NewEvent::json("a", &"x".repeat(size)));
    let batch = [
        sized(1, 10),
        sized(2, 200_000),
        sized(3, 10),
        sized(4, 200_000),
        sized(5, 10),
    ];
    let outcomes = deliver_all(&sink, &batch).await;
    for index in [0, 2, 4] {
        assert!(outcomes[index].is_ok(), "{:?}", outcomes[index]);
    }
    for index in [1, 3] {
        let error_chain = rejected(&outcomes[index], "too_large");
        assert!(error_chain.contains("message size"), "{error_chain}");
    }
    let taken = corner.taken().await;
    let distinct: HashSet<_> = taken.iter().map(Taken::id).collect();
    assert_eq!(distinct.len(), 3);
    // The sink applies the refusal of one message to each message that is as large, and loses no
    // channel for them.
    let mut crowd: Vec<_> = (6..=25).map(|number| sized(number, 200_000)).collect();
    crowd.push(sized(26, 10));
    let outcomes = deliver_all(&sink, &crowd).await;
    for outcome in &outcomes[..20] {
        rejected(outcome, "too_large");
        assert_eq!(outcome.as_ref().unwrap_err().receipt().status, Some(406));
    }
    assert!(outcomes[20].is_ok(), "{:?}", outcomes[20]);
    // If more messages are larger than the limit than one call tries alone, none is judged by the
    // size of another.
    let shrinking =
        (27..=34).map(|number| sized(number, 300_000 - usize::try_from(number).unwrap()));
    let mut crowd: Vec<_> = shrinking.collect();
    crowd.push(sized(35, 10));
    let outcomes = deliver_all(&sink, &crowd).await;
    for outcome in &outcomes[..8] {
        rejected(outcome, "too_large");
    }
    let error = outcomes[8].as_ref().unwrap_err();
    assert_matches!(error, SinkError::Declined { .. });
    assert_eq!(error.error_type(), "cut_off");
    deliver(&sink, crowd.remove(8)).await.unwrap();
}

async fn events_of_a_forbidden_key_hold_up_no_others(node: &Node) {
    let corner = Corner::at(&node.address()).await;
    let exchange = &corner.name;
    node.eval(&format!(
        "rabbit_auth_backend_internal:add_user(<<\"shop\">>, <<\"secret\">>, <<\"test\">>), \
         rabbit_auth_backend_internal:set_permissions(<<\"shop\">>, <<\"/\">>, <<\".*\">>, <<\".*\">>, \
         <<\".*\">>, <<\"test\">>), \
         rabbit_auth_backend_internal:set_topic_permissions(<<\"shop\">>, <<\"/\">>, <<\"{exchange}\">>, \
         <<\"^order\">>, <<\".*\">>, <<\"test\">>)."
    ))
    .await;
    let sink = sinks::amqp(
        format!("amqp://shop:secret@{}", node.address()),
        sinks::destination(),
        |it| it.exchange.clone_from(exchange),
    );
    let forbidden = (1..=20).map(|number| offer(number, NewEvent::json("seq.next", &number)));
    let mut batch: Vec<_> = forbidden.collect();
    batch.extend((21..=25).map(|number| offer(number, NewEvent::json("order.created", &number))));
    let outcomes = sink.deliver(&batch).await;
    for outcome in &outcomes[..20] {
        postponed(outcome, "closed");
        assert_matches!(outcome, Err(SinkError::Declined { .. }));
    }
    assert!(outcomes[20..].iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(corner.taken().await.len(), 5);

    // A user without write permission on the exchange is refused for every event.
    node.eval(
        "rabbit_auth_backend_internal:set_permissions(<<\"shop\">>, <<\"/\">>, <<\"\">>, <<\"^none$\">>, \
         <<\"\">>, <<\"test\">>).",
    )
    .await;
    let sink = sinks::amqp(
        format!("amqp://shop:secret@{}", node.address()),
        sinks::destination(),
        |it| it.exchange.clone_from(exchange),
    );
    for outcome in sink.deliver(&batch).await {
        let error_chain = postponed(&outcome, "closed");
        assert!(error_chain.contains("access to exchange"), "{error_chain}");
        assert_matches!(outcome, Err(SinkError::Unavailable { .. }));
    }
}

async fn an_alarm_holds_events_back_and_nothing_hangs(node: &Node) {
    let corner = Corner::at(&node.address()).await;
    let sink = sinks::amqp(
        url(&node.address()),
        sinks::within(Duration::from_secs(3)),
        |it| it.exchange.clone_from(&corner.name),
    );
    deliver(&sink, any_offer()).await.unwrap();
    node.eval("rabbit_disk_monitor:set_disk_free_limit(1000000000000000).")
        .await;
    let first = offer(2, NewEvent::json("a", &2));
    eventually(PATIENCE, async || {
        let start = Instant::now();
        let outcome = deliver(&sink, first.clone()).await;
        assert!(
            start.elapsed() < Duration::from_secs(8),
            "{:?}",
            start.elapsed()
        );
        matches!(
            outcome,
            Err(SinkError::Unavailable {
                error_type: "blocked",
                ..
            })
        )
    })
    .await;
    // While the alarm lasts, no delivery waits and no further connection is opened.
    let start = Instant::now();
    for _ in 0..20 {
        let error_chain = postponed(&deliver(&sink, first.clone()).await, "blocked");
        assert!(error_chain.contains("disk"), "{error_chain}");
    }
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    node.eval("rabbit_disk_monitor:set_disk_free_limit(1000000).")
        .await;
    eventually(PATIENCE, async || {
        deliver(&sink, first.clone()).await.is_ok()
    })
    .await;
}

async fn a_node_that_is_killed_in_mid_batch_loses_nothing(node: &mut Node) {
    let corner = Corner::empty(&node.address()).await;
    let durable = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    let (exchange, queue) = ("amq.topic", "kept");
    let no_arguments = FieldTable::default;
    corner
        .channel
        .queue_declare(queue.into(), durable, no_arguments())
        .await
        .unwrap();
    let options = QueueBindOptions::default();
    let bound = corner.channel.queue_bind(
        queue.into(),
        exchange.into(),
        "#".into(),
        options,
        no_arguments(),
    );
    bound.await.unwrap();
    drop(corner);
    // The broker confirms a queue before it is on disk. If it were killed now, the queue would be
    // lost.
    node.eval("catch mnesia:sync_log().").await;

    let sink = sinks::amqp(
        url(&node.address()),
        sinks::within(Duration::from_secs(10)),
        |it| exchange.clone_into(&mut it.exchange),
    );
    let sink = Arc::new(sink);
    let (confirmed, mut first_confirmed) = tokio::sync::watch::channel(0);
    let delivering = tokio::spawn({
        let sink = Arc::clone(&sink);
        // Delivers batches until the node is killed.
        async move {
            let (mut all, mut open) = (Vec::new(), Vec::new());
            while open.is_empty() {
                let first = all.len() as u64 + 1;
                let batch = (first..first + 500).map(|n| offer(n, NewEvent::json("a", &n)));
                let batch: Vec<_> = batch.collect();
                let outcomes = sink.deliver(&batch).await;
                all.extend(batch.iter().cloned());
                open = still_open(batch, &outcomes);
                confirmed.send_replace(all.len() - open.len());
            }
            (all, open)
        }
    });
    drop(first_confirmed.wait_for(|taken| *taken > 0).await.unwrap());
    node.kill();
    let (all, mut open) = timeout(PATIENCE, delivering).await.unwrap().unwrap();
    node.start_again().await;
    let mut outcome = Vec::new();
    let again = async {
        while !open.is_empty() {
            outcome = sink.deliver(&open).await;
            open = still_open(open.clone(), &outcome);
        }
    };
    let again = timeout(PATIENCE, again).await;
    assert!(again.is_ok(), "{:?}", outcome.iter().find(|it| it.is_err()));
    let corner = Corner::empty(&node.address()).await;
    let taken = drain(&corner.channel, queue).await;
    let distinct: HashSet<_> = taken.iter().map(Taken::id).collect();
    assert_eq!(distinct.len(), all.len(), "of {} messages", taken.len());
}
