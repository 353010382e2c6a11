//! The files of `packaging/`: they can be read, and set only what can be set.

use yaml_rust2::{Yaml, YamlLoader};

use super::*;

#[test]
fn the_packaged_settings_can_be_read() {
    let text = include_str!("../../../../../../packaging/relay.toml");
    let configured = read(text, &[], &[]).unwrap();
    assert_eq!(configured.config.drain.time, Duration::from_secs(30));
    assert!(configured.config.admin.listen.unwrap().ip().is_loopback());
    assert!(!configured.config.auth.jwt.keys.is_empty(), "not open");
}

const FLEET: &str = include_str!("../../../../../../packaging/fleet/relay.toml");
const COMPOSE: &str = include_str!("../../../../../../packaging/fleet/compose.yml");
const KUBERNETES: &str = include_str!("../../../../../../packaging/fleet/kubernetes.yml");
const NATS: &str = include_str!("../../../../../../packaging/fleet/nats.conf");

/// Checks the settings of a relay of the packaged fleet: the shared file, and its environment.
#[track_caller]
fn check_relay(environment: &[(String, String)], url: &str, grace: Duration) {
    let table = table();
    let variables: Vec<String> = table
        .iter()
        .map(|setting| settings::variable(VARIABLE_PREFIX, setting.key))
        .collect();
    let own = environment.iter();
    let own = own.filter(|(name, _)| name.starts_with(VARIABLE_PREFIX));
    let own: Vec<(&str, &str)> = own
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    for (name, _) in &own {
        assert!(variables.iter().any(|known| known == name), "{name}");
    }
    let configured = read(FLEET, &own, &[]).unwrap();
    let config = &configured.config;
    assert_eq!(config.fleet.url.as_deref(), Some(url));
    assert!(crate::relay::fleet::check(&configured).unwrap().is_some());
    assert!(!config.auth.jwt.keys.is_empty(), "not open");
    assert_eq!(config.upstream.ca, config.auth.clients.ca);
    assert!(grace > config.drain.delay + config.drain.time);
}

/// Returns the hosts of the packaged NATS servers.
fn nats_hosts() -> Vec<String> {
    let config = read(FLEET, &[], &[]).unwrap().config;
    let urls = config.fleet.nats.iter().map(|url| url.0.clone());
    let hosts = urls.filter_map(|url| {
        let host = url.strip_prefix("nats://")?.strip_suffix(":4222")?;
        assert!(NATS.contains(&format!("nats://{host}:6222")), "{host}");
        Some(host.to_owned())
    });
    hosts.collect()
}

#[test]
fn the_compose_file_starts_three_servers_and_three_relays() {
    let file = &YamlLoader::load_from_str(COMPOSE).unwrap()[0];
    let grace = file["x-relay"]["stop_grace_period"].as_str().unwrap();
    let grace = humantime::parse_duration(grace).unwrap();
    let services = file["services"].as_hash().unwrap();
    let (mut servers, mut relays) = (Vec::new(), 0);
    for (name, service) in services {
        let name = name.as_str().unwrap();
        let environment = service["environment"].as_hash().unwrap();
        let environment: Vec<(String, String)> = environment
            .iter()
            .map(|(key, value)| {
                let text = |yaml: &Yaml| yaml.as_str().unwrap().to_owned();
                (text(key), text(value))
            })
            .collect();
        if name.starts_with("relay-") {
            relays += 1;
            assert_eq!(service["<<"], file["x-relay"]);
            check_relay(&environment, &format!("moqt://{name}:4443"), grace);
        } else {
            assert_eq!(service["<<"], file["x-nats"]);
            assert_eq!(environment, [("NATS_NAME".to_owned(), name.to_owned())]);
            let alias = &service["networks"]["default"]["aliases"][0];
            servers.push(alias.as_str().unwrap().to_owned());
        }
    }
    assert_eq!((servers, relays), (nats_hosts(), 3));
    for template in ["x-nats", "x-relay"] {
        for volume in file[template]["volumes"].as_vec().unwrap() {
            let volume = volume.as_str().unwrap();
            let known = ["./nats.conf:", "./relay.toml:", "./tls:"];
            assert!(known.iter().any(|it| volume.starts_with(it)), "{volume}");
        }
    }
}

#[test]
fn the_manifests_start_three_servers_and_three_relays() {
    let manifests = YamlLoader::load_from_str(KUBERNETES).unwrap();
    let find = |kind: &str, name: &str| {
        let found = manifests.iter().find(|it| {
            it["kind"].as_str() == Some(kind) && it["metadata"]["name"].as_str() == Some(name)
        });
        found.unwrap_or_else(|| panic!("no {kind} {name}"))
    };
    for name in ["nats", "relay"] {
        let set = &find("StatefulSet", name)["spec"];
        assert_eq!(set["replicas"].as_i64(), Some(3));
        assert_eq!(set["serviceName"].as_str(), Some(name));
        assert_eq!(
            find("Service", name)["spec"]["clusterIP"].as_str(),
            Some("None")
        );
        let budget = &find("PodDisruptionBudget", name)["spec"];
        assert_eq!(budget["maxUnavailable"].as_i64(), Some(1));
        for other in [
            &set["selector"]["matchLabels"],
            &set["template"]["metadata"]["labels"],
            &find("Service", name)["spec"]["selector"],
            &budget["selector"]["matchLabels"],
        ] {
            assert_eq!(other["app"].as_str(), Some(name));
        }
    }
    let hosts: Vec<String> = (0..3).map(|number| format!("nats-{number}.nats")).collect();
    assert_eq!(nats_hosts(), hosts);
    let pod = &find("StatefulSet", "relay")["spec"]["template"]["spec"];
    let grace = pod["terminationGracePeriodSeconds"].as_i64().unwrap();
    let environment = pod["containers"][0]["env"].as_vec().unwrap().iter();
    let environment: Vec<(String, String)> = environment
        .filter_map(|variable| {
            let value = variable["value"].as_str()?;
            let name = variable["name"].as_str()?.to_owned();
            Some((name, value.replace("$(POD_NAME)", "relay-0")))
        })
        .collect();
    let grace = Duration::from_secs(grace.unsigned_abs());
    check_relay(&environment, "moqt://relay-0.relay:4443", grace);
}
