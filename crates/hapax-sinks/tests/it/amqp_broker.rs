//! Objects in the RabbitMQ broker of this machine, and a private node that a test may kill.

use std::{fs, process::Command, sync::Mutex, time::Duration};

use hapax_testkit::{
    name::unused,
    port::free_port,
    program::{Program, guarded},
    wait::pace,
};
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind,
    options::{BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable, LongString},
};
use tempfile::TempDir;
use tokio::time::timeout;

/// The broker of this machine.
pub(crate) const BROKER: &str = "127.0.0.1:5672";
const START: Duration = Duration::from_mins(1);
const STARTS: usize = 3;
const ANSWER: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(50);
const PROGRAMS: &str = "/usr/lib/rabbitmq/bin";

/// An exchange with a queue bound to it. Both are deleted when the value is dropped.
pub(crate) struct Corner {
    pub(crate) name: String,
    _connection: Connection,
    pub(crate) channel: Channel,
    taken: Mutex<Vec<Taken>>,
}

/// A message as it was in the queue.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) properties: BasicProperties,
    pub(crate) routing_key: String,
    pub(crate) body: Vec<u8>,
}

impl Corner {
    /// Creates a topic exchange of the broker at `host:port`, and a queue that receives everything.
    pub(crate) async fn at(broker: &str) -> Self {
        let corner = Self::empty(broker).await;
        corner.queue("all", &[]).await;
        corner.bind("all", "#").await;
        corner
    }

    /// Creates a topic exchange without a queue.
    pub(crate) async fn empty(broker: &str) -> Self {
        let name = unused("hapax");
        let url = format!("amqp://guest:guest@{broker}");
        let connection = Connection::connect(&url, ConnectionProperties::default());
        let connection = timeout(START, connection).await;
        let connection = connection.expect("RabbitMQ responds");
        let connection = connection.expect("RabbitMQ must run on this machine");
        let channel = connection.create_channel().await.unwrap();
        let options = ExchangeDeclareOptions {
            auto_delete: true,
            durable: false,
            ..ExchangeDeclareOptions::default()
        };
        let none = FieldTable::default();
        let exchange = name.as_str().into();
        let declared = channel.exchange_declare(exchange, ExchangeKind::Topic, options, none);
        declared.await.unwrap();
        Self {
            name,
            _connection: connection,
            channel,
            taken: Mutex::default(),
        }
    }

    /// Declares a queue that is deleted with this value.
    pub(crate) async fn queue(&self, queue: &str, arguments: &[(&str, AMQPValue)]) {
        let options = QueueDeclareOptions {
            exclusive: true,
            ..QueueDeclareOptions::default()
        };
        let mut table = FieldTable::default();
        for (name, value) in arguments {
            table.insert((*name).into(), value.clone());
        }
        let name = self.queue_name(queue).as_str().into();
        self.channel
            .queue_declare(name, options, table)
            .await
            .unwrap();
    }

    /// Declares a queue that has no room and refuses every message.
    pub(crate) async fn full_queue(&self, queue: &str) {
        let refuses = LongString::from("reject-publish").into();
        let full = [("x-max-length", 0.into()), ("x-overflow", refuses)];
        self.queue(queue, &full).await;
    }

    pub(crate) async fn bind(&self, queue: &str, key: &str) {
        let (queue, exchange) = (self.queue_name(queue), self.name.as_str());
        let (options, none) = (QueueBindOptions::default(), FieldTable::default());
        let bound = self.channel.queue_bind(
            queue.as_str().into(),
            exchange.into(),
            key.into(),
            options,
            none,
        );
        bound.await.unwrap();
    }

    pub(crate) async fn unbind(&self, queue: &str, key: &str) {
        let (queue, exchange) = (self.queue_name(queue), self.name.as_str());
        let none = FieldTable::default();
        let unbound =
            self.channel
                .queue_unbind(queue.as_str().into(), exchange.into(), key.into(), none);
        unbound.await.unwrap();
    }

    pub(crate) fn queue_name(&self, queue: &str) -> String {
        format!("{}.{queue}", self.name)
    }

    /// All messages that have arrived in the queue `all`, in order.
    pub(crate) async fn taken(&self) -> Vec<Taken> {
        let new = drain(&self.channel, &self.queue_name("all")).await;
        let mut taken = self.taken.lock().unwrap();
        taken.extend(new);
        taken.clone()
    }
}

impl Taken {
    pub(crate) fn id(&self) -> String {
        let id = self.properties.message_id().clone();
        id.expect("a message must have an id").as_str().to_owned()
    }

    /// A header that contains text.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let headers = self.properties.headers().as_ref()?;
        match headers.inner().get(name)? {
            AMQPValue::LongString(text) => Some(text.to_string()),
            other => panic!("{name} is {other:?}"),
        }
    }
}

/// Takes all messages from a queue.
pub(crate) async fn drain(channel: &Channel, queue: &str) -> Vec<Taken> {
    let mut taken = Vec::new();
    let options = BasicGetOptions { no_ack: true };
    while let Some(message) = channel.basic_get(queue.into(), options).await.unwrap() {
        let delivery = message.delivery;
        taken.push(Taken {
            properties: delivery.properties,
            routing_key: delivery.routing_key.as_str().to_owned(),
            body: delivery.data,
        });
    }
    taken
}

/// A private RabbitMQ node, which is stopped when the value is dropped or when this process ends.
pub(crate) struct Node {
    directory: TempDir,
    name: String,
    ports: [u16; 2],
    program: Option<Program>,
}

impl Node {
    /// Creates a node and starts it.
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("plugins"), "[].").unwrap();
        let settings = "disk_free_limit.absolute = 1MB\nlog.file.level = error\n";
        fs::write(directory.path().join("rabbit.conf"), settings).unwrap();
        let mut node = Self {
            directory,
            name: format!("{}@localhost", unused("hapax")),
            ports: [free_port(), free_port()],
            program: None,
        };
        node.start_again().await;
        node
    }

    /// Starts the node with its existing data. Returns when it accepts connections.
    pub(crate) async fn start_again(&mut self) {
        for _ in 0..STARTS {
            self.launch();
            if timeout(START, self.takes_connections()).await.is_ok() {
                return;
            }
            // On a busy machine, a program may wait forever for a node that has missed its request.
            self.kill();
        }
        let said = fs::read_to_string(self.directory.path().join("out"));
        panic!("RabbitMQ did not start, {STARTS} times: {said:?}");
    }

    fn launch(&mut self) {
        let mut command = guarded(format!("{PROGRAMS}/rabbitmq-server"), "KILL");
        self.configure(&mut command);
        let log = self.directory.path().join("out");
        self.program = Some(Program::start(command, &log));
    }

    /// Waits until the node accepts connections. A client that connects during the start may get no
    /// response, so each try uses a new connection.
    async fn takes_connections(&self) {
        let url = format!("amqp://guest:guest@{}", self.address());
        loop {
            let connection = Connection::connect(&url, ConnectionProperties::default());
            if let Ok(Ok(_)) = timeout(ANSWER, connection).await {
                return;
            }
            pace(TICK).await;
        }
    }

    /// Kills the node with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.program = None;
    }

    /// Evaluates an expression in the node.
    pub(crate) async fn eval(&self, expression: &str) {
        for is_last in [false, false, true] {
            // On a busy machine, a program may wait forever for a node that has missed its request.
            let mut command = Command::new("timeout");
            self.configure(&mut command);
            let program = format!("{PROGRAMS}/rabbitmqctl");
            command.args([
                "--kill-after=3",
                "30",
                &program,
                "--quiet",
                "eval",
                expression,
            ]);
            let run = tokio::task::spawn_blocking(move || command.output());
            let output = run.await.unwrap().expect("rabbitmqctl must be installed");
            if output.status.success() {
                return;
            }
            assert!(!is_last, "{expression}: {output:?}");
        }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports[0])
    }

    fn configure(&self, command: &mut Command) {
        let path = |name: &str| self.directory.path().join(name);
        command.env("HOME", path("home"));
        fs::create_dir_all(path("home")).unwrap();
        command.env("RABBITMQ_NODENAME", &self.name);
        command.env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1");
        command.env("RABBITMQ_NODE_PORT", self.ports[0].to_string());
        command.env("RABBITMQ_DIST_PORT", self.ports[1].to_string());
        command.env("RABBITMQ_MNESIA_BASE", path("mnesia"));
        command.env("RABBITMQ_LOG_BASE", path("log"));
        command.env("RABBITMQ_LOGS", path("log/node.log"));
        command.env("RABBITMQ_ENABLED_PLUGINS_FILE", path("plugins"));
        command.env("RABBITMQ_CONFIG_FILE", path("rabbit"));
        command.env("RABBITMQ_PID_FILE", path("pid"));
        command.env("RABBITMQ_CONF_ENV_FILE", "/dev/null");
    }
}
