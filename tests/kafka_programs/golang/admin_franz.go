package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// franzAdmin makes the calls of Redpanda Console, which looks at a cluster through kadm, and those
// of a script that looks after a topic. It prints what each of them found.
func franzAdmin(ctx context.Context, bootstrap string, as *login) (any, error) {
	client, err := franz(bootstrap, as)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	const topic = "franz-admin"
	began := time.Now().Add(-time.Minute).UnixMilli()
	if err := franzTopic(ctx, client, topic, 2); err != nil {
		return nil, err
	}
	if err := franzSend(ctx, client, topic, 0, count); err != nil {
		return nil, err
	}
	seen := map[string]any{}
	steps := []struct {
		name string
		call func() (any, error)
	}{
		{"versions", func() (any, error) { found, err := admin.ApiVersions(ctx); return len(found), err }},
		{"brokers", func() (any, error) { found, err := admin.BrokerMetadata(ctx); return len(found.Brokers), err }},
		{"broker configs", func() (any, error) {
			found, err := admin.DescribeBrokerConfigs(ctx)
			if err == nil {
				for _, each := range found {
					err = each.Err
				}
			}
			return len(found), err
		}},
		{"topics", func() (any, error) {
			found, err := admin.ListTopics(ctx)
			if err == nil {
				err = found[topic].Err
			}
			return len(found[topic].Partitions), err
		}},
		{"alter config", func() (any, error) {
			days := "86400000"
			change := kadm.AlterConfig{Op: kadm.SetConfig, Name: "retention.ms", Value: &days}
			found, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, topic)
			if err == nil {
				err = found[0].Err
			}
			return len(found), err
		}},
		{"config", func() (any, error) {
			found, err := admin.DescribeTopicConfigs(ctx, topic)
			if err != nil {
				return nil, err
			}
			for _, config := range found[0].Configs {
				if config.Key == "retention.ms" {
					return *config.Value, found[0].Err
				}
			}
			return nil, found[0].Err
		}},
		{"add partitions", func() (any, error) {
			found, err := admin.UpdatePartitions(ctx, 4, topic)
			if err == nil {
				err = found[topic].Err
			}
			return len(found), err
		}},
		{"delete records", func() (any, error) {
			offsets := kadm.Offsets{}
			offsets.AddOffset(topic, 0, 10, -1)
			found, err := admin.DeleteRecords(ctx, offsets)
			if err == nil {
				err = found.Error()
			}
			return len(found), err
		}},
		{"start", func() (any, error) {
			found, err := admin.ListStartOffsets(ctx, topic)
			if err == nil {
				err = found.Error()
			}
			return found[topic][0].Offset, err
		}},
		{"end", func() (any, error) {
			found, err := admin.ListEndOffsets(ctx, topic)
			if err == nil {
				err = found.Error()
			}
			return found[topic][0].Offset + found[topic][1].Offset, err
		}},
		{"by time", func() (any, error) {
			found, err := admin.ListOffsetsAfterMilli(ctx, began, topic)
			if err == nil {
				err = found.Error()
			}
			return found[topic][0].Offset, err
		}},
		{"commit", func() (any, error) {
			offsets := kadm.Offsets{}
			offsets.AddOffset(topic, 0, 20, -1)
			return nil, admin.CommitAllOffsets(ctx, topic, offsets)
		}},
		{"groups", func() (any, error) {
			found, err := admin.ListGroups(ctx)
			_, is := found[topic]
			return is, err
		}},
		{"group", func() (any, error) {
			found, err := admin.DescribeGroups(ctx, topic)
			if err == nil {
				err = found.Error()
			}
			return found[topic].State, err
		}},
		{"lag", func() (any, error) {
			found, err := admin.Lag(ctx, topic)
			if err == nil {
				err = found.Error()
			}
			return found[topic].Lag[topic][0].Commit.At, err
		}},
		{"log dirs", func() (any, error) {
			found, err := admin.DescribeAllLogDirs(ctx, nil)
			found.Each(func(dir kadm.DescribedLogDir) { err = errors.Join(err, dir.Err) })
			return len(found), err
		}},
		{"producers", func() (any, error) {
			found, err := admin.DescribeProducers(ctx, kadm.TopicsSet{topic: {0: {}}})
			if err == nil {
				err = found[topic].Partitions[0].Err
			}
			return len(found[topic].Partitions[0].ActiveProducers), err
		}},
		{"transactions", func() (any, error) { found, err := admin.ListTransactions(ctx, nil, nil); return len(found), err }},
		{"quotas", func() (any, error) {
			found, err := admin.DescribeClientQuotas(ctx, false, []kadm.DescribeClientQuotaComponent{{Type: "user", MatchType: 2}})
			return len(found), err
		}},
		{"users", func() (any, error) { found, err := admin.DescribeUserSCRAMs(ctx); return len(found), err }},
		{"acls", func() (any, error) {
			all := kadm.NewACLs().AnyResource().Allow().AllowHosts().Deny().DenyHosts().Operations().ResourcePatternType(kadm.ACLPatternAny)
			found, err := admin.DescribeACLs(ctx, all)
			if err == nil {
				err = found[0].Err
			}
			return len(found[0].Described), err
		}},
		{"reassignments", func() (any, error) { found, err := admin.ListPartitionReassignments(ctx, nil); return len(found), err }},
		{"elect", func() (any, error) {
			found, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, kadm.TopicsSet{topic: {0: {}}})
			if err == nil {
				err = found[topic][0].Err
			}
			return len(found), err
		}},
		{"features", func() (any, error) { found, err := admin.UpdateFeatures(ctx, true); return len(found), err }},
		{"share groups", func() (any, error) { found, err := admin.DescribeShareGroups(ctx, topic); return len(found), err }},
		{"delete group", func() (any, error) { found, err := admin.DeleteGroup(ctx, topic); return found.Group, err }},
		{"delete topic", func() (any, error) { found, err := admin.DeleteTopic(ctx, topic); return found.Topic, err }},
	}
	for _, step := range steps {
		found, err := step.call()
		if err != nil {
			found = err.Error()
		}
		seen[step.name] = found
	}
	return seen, nil
}
