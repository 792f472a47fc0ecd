//! The operations of a configuration. An operation is a part of the scope of its keys, so a configuration
//! without the operation does not find them.

use std::collections::BTreeSet;

use super::Settings;

impl Settings {
    /// The names of all operations that are protected. A route that is not valid has none.
    pub fn operations(&self) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for route in self.routes.values() {
            let (service, template) = (&self.service, route.template());
            for method in route.protected_methods().unwrap_or_default() {
                all.insert(format!("{service}:{method} {template}"));
            }
        }
        all
    }
}
