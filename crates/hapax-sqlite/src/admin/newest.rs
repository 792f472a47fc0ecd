//! Visits deliveries of several partitions, the newest event first.
//!
//! Every partition has its deliveries in order. The next of all partitions is the newest of the next
//! of each, so a page reads as many rows as it visits, and one more of each partition.

use hapax::admin::{AdminError, DeliveryCursor, DeliveryIndex, Partition};
use rusqlite::{Rows, Statement, params};

use super::view::{View, admin_error};
use crate::query;

/// Deliveries of an index, before a cursor.
pub(super) struct Newest<'a> {
    view: &'a View<'a>,
    sql: &'static str,
    before: DeliveryCursor,
    partitions: Vec<(String, Statement<'a>)>,
}

impl<'a> Newest<'a> {
    /// Deliveries that have a row in this index.
    pub(super) fn of(
        view: &'a View<'a>,
        index: DeliveryIndex,
        before: Option<&DeliveryCursor>,
    ) -> Self {
        let first = DeliveryCursor {
            position: i64::MAX,
            partition: String::new(),
        };
        Self {
            view,
            sql: match index {
                DeliveryIndex::Dead => query!("admin/newest_dead"),
                DeliveryIndex::Parked => query!("admin/newest_parked"),
                DeliveryIndex::All => query!("admin/newest"),
            },
            before: before.cloned().unwrap_or(first),
            partitions: Vec::new(),
        }
    }

    /// Prepares the statements, one for each partition, because all of them are read at once.
    pub(super) fn prepare(&mut self, partitions: &[Partition]) -> Result<(), AdminError> {
        for partition in partitions {
            let statement = self.view.conn.prepare(self.sql).map_err(admin_error)?;
            self.partitions.push((partition.name.clone(), statement));
        }
        Ok(())
    }

    /// Visits the deliveries until `visit` returns false.
    pub(super) fn visit(
        &mut self,
        mut visit: impl FnMut(DeliveryCursor) -> Result<bool, AdminError>,
    ) -> Result<(), AdminError> {
        let Self {
            before, partitions, ..
        } = self;
        let mut heads = Vec::with_capacity(partitions.len());
        for (partition, statement) in partitions.iter_mut() {
            let partition: &str = partition;
            let params = params![partition, before.position, before.partition];
            let rows = statement.query(params).map_err(admin_error)?;
            heads.push(Head::of(partition, rows)?);
        }
        loop {
            let open = heads.iter_mut().filter(|head| head.position.is_some());
            let Some(head) = open.max_by(|one, other| one.place().cmp(&other.place())) else {
                return Ok(());
            };
            let Some(position) = head.position else {
                return Ok(());
            };
            let partition = head.partition.to_owned();
            if !visit(DeliveryCursor {
                position,
                partition,
            })? {
                return Ok(());
            }
            head.advance()?;
        }
    }
}

/// The next delivery of a partition.
struct Head<'a> {
    partition: &'a str,
    rows: Rows<'a>,
    position: Option<i64>,
}

impl<'a> Head<'a> {
    fn of(partition: &'a str, rows: Rows<'a>) -> Result<Self, AdminError> {
        let mut head = Self {
            partition,
            rows,
            position: None,
        };
        head.advance()?;
        Ok(head)
    }

    fn advance(&mut self) -> Result<(), AdminError> {
        let mut next = || self.rows.next()?.map(|row| row.get(0)).transpose();
        self.position = next().map_err(admin_error)?;
        Ok(())
    }

    fn place(&self) -> (Option<i64>, &str) {
        (self.position, self.partition)
    }
}
