//! What the official client for Rust does with a proxy: `scenario ENDPOINT SSL PREFIX basic`.
//! Each fact is one line, `> basic: FACT`. Its release 5.0.0 has no push consumer, and cannot give
//! a message back.

use std::time::{Duration, Instant};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::{Producer, SimpleConsumer};

async fn receive(consumer: &SimpleConsumer, topic: &str, count: usize, time: Duration) -> Vec<MessageView> {
    let filter = FilterExpression::new(FilterType::Tag, "a || b");
    let mut got = Vec::new();
    let begun = Instant::now();
    while got.len() < count && begun.elapsed() < time {
        got.extend(consumer.receive(topic.to_string(), &filter).await.unwrap_or_default());
    }
    got
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let topic = format!("{}{}", arguments[2], arguments[3]);
    let client = || {
        let mut option = ClientOption::default();
        option.set_access_url(arguments[0].clone());
        option.set_enable_tls(arguments[1] == "true");
        option.set_long_polling_timeout(Duration::from_secs(5));
        option
    };
    let mut option = SimpleConsumerOption::default();
    option.set_topics(vec![topic.clone()]);
    option.set_consumer_group(topic.clone());
    let mut consumer = SimpleConsumer::new(option, client()).expect("a consumer");
    consumer.start().await.expect("a consumer that starts");
    receive(&consumer, &topic, 1, Duration::from_secs(1)).await; // its group has begun
    let mut option = ProducerOption::default();
    option.set_topics(vec![topic.clone()]);
    let mut producer = Producer::new(option, client()).expect("a producer");
    producer.start().await.expect("a producer that starts");
    for number in 0..6 {
        let message = MessageBuilder::builder()
            .set_topic(topic.clone())
            .set_tag(["a", "b", "c"][number % 3])
            .set_keys(vec![format!("k{number}")])
            .set_body(format!("m{number}").into_bytes())
            .build()
            .expect("a message");
        producer.send(message).await.expect("a send");
    }
    let got = receive(&consumer, &topic, 4, Duration::from_secs(30)).await;
    let mut facts = Vec::new();
    for message in &got {
        let body = String::from_utf8_lossy(message.body());
        let keys = message.keys().join(",");
        let attempt = message.delivery_attempt();
        facts.push(format!("{body} {} {keys} {attempt}", message.tag().unwrap_or("")));
        consumer.ack(message).await.expect("an acknowledgement");
    }
    facts.sort();
    for fact in facts {
        println!("> basic: {fact}");
    }
    let left = receive(&consumer, &topic, 1, Duration::from_secs(12)).await;
    println!("> basic: left {}", left.len());
}
